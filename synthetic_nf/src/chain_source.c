/* Traffic of the chains, as a NIC would bring it: at a constant rate, whatever becomes of it. */
#include "chain_source.h"

#include "chain_tcp.h"
#include "clock.h"
#include "message.h"
#include "traffic.h"

#include <string.h>

#define AT_A_TIME 64
#define RECEIVED 32    /* packets of a burst from the card: PACKET_READ_SIZE of OpenNetVM, onvm_mgr.h */
#define TCP_A_LOOK 512 /* packets of a sender, at most */

struct chain_entry {
	struct traffic traffic[SIZES_MOST];
	unsigned next_size;
	uint32_t next_frame;
	double ticks_per_packet, due_most;
	uint64_t begun, due;
	uint64_t waiting; /* due, and not let in yet at this look */
	struct chain_tcp *tcp;
	struct chain_counters counters;
	struct histogram latency;
};

struct chain_source {
	struct chain_memory *memory;
	struct chain_buffer **unused; /* the buffer used last goes out first: it may still be in a cache */
	uint32_t unused_count;
	unsigned turn; /* which chain comes first at a look: all find room in a shared ring alike */
	struct chain_entry entries[CHAINS_MOST];
};

struct chain_source *chain_source_create(struct chain_memory *memory)
{
	const struct chain_plan *plan = memory->plan;
	struct chain_source *source = allocate(1, sizeof(*source));

	source->memory = memory;
	source->unused = allocate(memory->buffer_count, sizeof(struct chain_buffer *));
	for (uint32_t i = memory->buffer_count; i-- > 0;)
		source->unused[source->unused_count++] = chain_buffer_at(memory, i);
	for (unsigned c = 0; c < plan->chain_count; c++) {
		struct chain_entry *entry = &source->entries[c];

		if (plan->chains[c].tcp)
			entry->tcp = chain_tcp_start(memory, c);
		entry->ticks_per_packet = clock_hz() / (plan->chains[c].rate_mpps * 1e6);
		for (unsigned i = 0; i < plan->chains[c].size_count; i++)
			entry->traffic[i] = traffic_generate(plan->chains[c].flows, plan->chains[c].sizes[i], c + 1);
	}
	return source;
}

void chain_source_start(struct chain_source *source, uint64_t now_ticks)
{
	for (unsigned c = 0; c < source->memory->plan->chain_count; c++) {
		const struct plan_chain *chain = &source->memory->plan->chains[c];

		source->entries[c].begun = now_ticks + (uint64_t)(chain->from_ms * clock_hz() / 1e3);
		source->entries[c].due_most = (chain->to_ms - chain->from_ms) * chain->rate_mpps * 1e3;
	}
}

/* Packets that should have come by now, since the chain began to send and until it stopped. */
static uint64_t due_by(const struct chain_entry *entry, uint64_t now)
{
	double due = now > entry->begun ? (double)(now - entry->begun) / entry->ticks_per_packet : 0;

	return (uint64_t)(due < entry->due_most ? due : entry->due_most);
}

static void fill(struct chain_entry *entry, const struct plan_chain *chain, struct chain_buffer *buffer, uint64_t now)
{
	const struct traffic *traffic = &entry->traffic[entry->next_size];
	const struct frame *frame = &traffic->frames[entry->next_frame];

	buffer->length = frame->length;
	buffer->offset = HEADROOM;
	buffer->arrived_ticks = buffer->queued_ticks = now;
	memcpy(buffer->bytes + HEADROOM, traffic->bytes + frame->offset, frame->length);
	if (++entry->next_size == chain->size_count) {
		entry->next_size = 0;
		entry->next_frame = entry->next_frame + 1 == traffic->count ? 0 : entry->next_frame + 1;
	}
}

/* As many of `count` packets as find room, burst by burst: the rest is refused after a mark, and else lost. */
static void let_in(struct chain_source *source, unsigned number, uint64_t count, uint64_t now, struct chain_marks *marks)
{
	struct hop *hop = &source->memory->hops[number][0];
	const struct plan_chain *chain = &source->memory->plan->chains[number];
	struct chain_counters *counters = &source->entries[number].counters;
	bool stopped = false;
	void *burst[AT_A_TIME];

	counters->offered += count;
	while (count && !(stopped = chain_marks_stop(marks, hop))) {
		uint32_t some = chain_ring_room(hop->ring);

		some = some < source->unused_count ? some : source->unused_count;
		some = some < AT_A_TIME ? some : AT_A_TIME;
		some = some < count ? some : (uint32_t)count;
		if (!some)
			break;
		for (uint32_t i = 0; i < some; i++) {
			struct chain_buffer *buffer = source->unused[--source->unused_count];

			fill(&source->entries[number], chain, buffer, now);
			buffer->chain = number;
			burst[i] = buffer;
		}
		chain_ring_put(hop->ring, burst, some);
		hop->offered += some;
		count -= some;
	}
	if (stopped) { /* no load of the first stage, which never sees them: weights are by what may be worked on */
		counters->refused += count;
		return;
	}
	hop->offered += count;
	hop->lost += count;
	counters->entry_lost += count;
}

/* Up to `count` packets that a kernel's sender has out: whether it had them. A stopped chain, or a full ring, loses them. */
static bool let_tcp_in(struct chain_source *source, unsigned number, uint64_t count, uint64_t now, struct chain_marks *marks)
{
	struct chain_entry *entry = &source->entries[number];
	struct hop *hop = &source->memory->hops[number][0];

	for (uint64_t i = 0; i < count; i++) {
		struct chain_buffer *buffer = source->unused_count ? source->unused[source->unused_count - 1] : NULL;
		void *one = buffer;

		if (!buffer || !chain_tcp_take(entry->tcp, buffer))
			return false;
		entry->counters.offered++;
		if (chain_marks_stop(marks, hop)) {
			entry->counters.refused++;
			continue;
		}
		entry->counters.marked += marks->marking[number] && chain_tcp_mark(buffer);
		buffer->chain = number;
		buffer->arrived_ticks = buffer->queued_ticks = now;
		hop->offered++;
		if (chain_ring_put(hop->ring, &one, 1)) {
			source->unused_count--;
		} else {
			entry->counters.entry_lost++;
			hop->lost++;
		}
	}
	return true;
}

/* The next burst of a chain: whether more of it waits. */
static bool let_burst_in(struct chain_source *source, unsigned number, uint64_t most, uint64_t now, struct chain_marks *marks)
{
	struct chain_entry *entry = &source->entries[number];
	uint64_t count = entry->waiting < most ? entry->waiting : most;

	entry->waiting -= count;
	if (!entry->tcp)
		let_in(source, number, count, now, marks);
	else if (!let_tcp_in(source, number, count, now, marks))
		entry->waiting = 0;
	return entry->waiting > 0;
}

void chain_source_collect(struct chain_source *source)
{
	struct chain_memory *memory = source->memory;
	void *burst[AT_A_TIME];
	uint32_t count;

	for (unsigned c = 0; c < memory->plan->chain_count; c++) {
		struct chain_entry *entry = &source->entries[c];

		while ((count = chain_ring_take(memory->exits[c], burst, AT_A_TIME)) > 0) {
			for (uint32_t i = 0; i < count; i++) {
				struct chain_buffer *buffer = burst[i];

				if (entry->tcp)
					chain_tcp_give(entry->tcp, buffer);
				histogram_add(&entry->latency, buffer->left_ticks - buffer->arrived_ticks, 1);
				entry->counters.delivered_bytes += buffer->length;
				source->unused[source->unused_count++] = buffer;
			}
			entry->counters.delivered += count;
		}
	}
	for (unsigned s = 0; s < memory->plan->stage_count; s++)
		while ((count = chain_ring_take(memory->stages[s].returned, burst, AT_A_TIME)) > 0)
			for (uint32_t i = 0; i < count; i++)
				source->unused[source->unused_count++] = burst[i];
}

void chain_source_offer(struct chain_source *source, uint64_t now_ticks, struct chain_marks *marks)
{
	const struct chain_plan *plan = source->memory->plan;
	bool more = true;

	source->turn++;
	for (unsigned c = 0; c < plan->chain_count; c++) {
		struct chain_entry *entry = &source->entries[c];
		uint64_t due = due_by(entry, now_ticks);

		entry->waiting = entry->tcp ? TCP_A_LOOK : due - entry->due;
		entry->due = due;
		if (entry->tcp)
			chain_tcp_return(entry->tcp, now_ticks);
	}
	while (more) {
		more = false;
		for (unsigned i = 0; i < plan->chain_count; i++)
			more |= let_burst_in(source, (i + source->turn) % plan->chain_count,
					     plan->shared ? RECEIVED : UINT64_MAX, now_ticks, marks);
		chain_marks_wake(marks, source->memory);
		if (more)
			chain_source_collect(source);
		if (more && plan->pressure)
			chain_marks_update(marks, source->memory, clock_ticks());
	}
}

void chain_source_end(struct chain_source *source)
{
	for (unsigned c = 0; c < source->memory->plan->chain_count; c++)
		if (source->entries[c].tcp)
			chain_tcp_end(source->entries[c].tcp);
}

const struct chain_counters *chain_source_counters(const struct chain_source *source, unsigned chain)
{
	return &source->entries[chain].counters;
}

const struct histogram *chain_source_latency(const struct chain_source *source, unsigned chain)
{
	return &source->entries[chain].latency;
}
