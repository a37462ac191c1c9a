/*
 * NFVnice's back-pressure (SIGCOMM'17, section 3.3): a ring above its high mark whose first packet has waited longer than
 * a threshold stops its chain at the entry, until it is below its low mark; the stages before it leave this chain's
 * packets alone meanwhile. Per chain: other chains through the same stages go on. Where chains share rings, the marks of
 * the ring at the entry stop them, too, as in NFVnice's published code (`onvm_detect_and_set_back_pressure`, onvm_pkt.c).
 */
#define _GNU_SOURCE
#include "chain_marks.h"

#include "chain_stage.h"
#include "clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The authors' code: three quarters of the way between the marks, smoothed; as slomo/simulator/sharing/settings.py. */
#define MARK_BETWEEN 0.75
#define SMOOTHING 0.1

struct chain_marks chain_marks_of(const struct chain_plan *plan)
{
	return (struct chain_marks){
		.high = (uint32_t)(plan->high * (plan->ring - 1)),
		.low = (uint32_t)(plan->low * (plan->ring - 1)),
		.mark_above = (plan->low + MARK_BETWEEN * (plan->high - plan->low)) * (plan->ring - 1),
		.at_entry = plan->pressure && plan->shared,
		.wait_ticks = (uint64_t)(plan->wait_us * clock_hz() / 1e6),
	};
}

static bool too_full(const struct chain_marks *marks, const struct hop *hop, bool was_full, uint64_t now)
{
	uint32_t count = chain_ring_count(hop->ring);
	const struct chain_buffer *first;

	if (was_full)
		return count > marks->low;
	if (count <= marks->high)
		return false;
	first = chain_ring_first(hop->ring);
	return first && now - __atomic_load_n(&first->queued_ticks, __ATOMIC_RELAXED) > marks->wait_ticks;
}

/* The last ring that is full; 0 where none is, since the first one is the entry's own. */
static unsigned bottleneck(struct chain_marks *marks, const struct chain_memory *memory, unsigned chain, uint64_t now)
{
	unsigned last = 0;

	for (unsigned i = 1; i < memory->plan->chains[chain].length; i++) {
		bool *full = &marks->full[chain][i];

		*full = too_full(marks, &memory->hops[chain][i], *full, now);
		last = *full ? i : last;
	}
	return last;
}

void chain_marks_update(struct chain_marks *marks, struct chain_memory *memory, uint64_t now_ticks)
{
	for (unsigned c = 0; c < memory->plan->chain_count; c++) {
		unsigned last = bottleneck(marks, memory, c, now_ticks);

		marks->presses += last > 0 && !marks->pressed[c];
		marks->pressed[c] = last > 0;
		for (unsigned i = 0; i < memory->plan->chains[c].length; i++)
			__atomic_store_n(&memory->hops[c][i].held, i < last, __ATOMIC_RELAXED);
	}
}

bool chain_marks_stop(struct chain_marks *marks, const struct hop *entry)
{
	bool *full = &marks->full[entry->chain][0];

	*full = marks->at_entry && chain_ring_count(entry->ring) > (*full ? marks->low : marks->high);
	return marks->pressed[entry->chain] || *full;
}

void chain_marks_ecn(struct chain_marks *marks, const struct chain_memory *memory)
{
	for (unsigned c = 0; c < memory->plan->chain_count; c++) {
		marks->marking[c] = false;
		for (unsigned i = 0; i < memory->plan->chains[c].length && memory->plan->chains[c].tcp; i++) {
			double *smoothed = &marks->smoothed[c][i];

			*smoothed += SMOOTHING * (chain_ring_count(memory->hops[c][i].ring) - *smoothed);
			marks->marking[c] = marks->marking[c] || *smoothed > marks->mark_above;
		}
	}
}

void chain_marks_wake_one(struct stage_state *stage)
{
	__atomic_store_n(&stage->asleep, 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &stage->asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* A stage that stopped because the next ring was full goes on only when that is below its low mark: else it would come for a burst only. */
static bool has_work(const struct chain_marks *marks, const struct chain_memory *memory, const struct stage_state *stage)
{
	for (unsigned h = 0; h < stage->hop_count; h++)
		if (hop_may_run(memory->plan, stage->hops[h], marks->low))
			return true;
	return false;
}

void chain_marks_wake(struct chain_marks *marks, struct chain_memory *memory)
{
	for (unsigned s = 0; s < memory->plan->stage_count; s++) {
		struct stage_state *stage = &memory->stages[s];

		if (__atomic_load_n(&stage->asleep, __ATOMIC_SEQ_CST) && has_work(marks, memory, stage)) {
			chain_marks_wake_one(stage);
			marks->wakes++;
		}
	}
}

void chain_marks_wake_all(struct chain_memory *memory)
{
	for (unsigned s = 0; s < memory->plan->stage_count; s++)
		chain_marks_wake_one(&memory->stages[s]);
}
