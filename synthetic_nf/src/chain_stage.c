/* One stage of the chains, as NFVnice's libnf (SIGCOMM'17, section 3): bursts, a look at the flags between them, sleep when idle. */
#define _GNU_SOURCE
#include "chain_stage.h"

#include "chain_log.h"
#include "chain_mbufs.h"
#include "clock.h"
#include "message.h"
#include "nf.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUND_ROBIN_PRIORITY 1
#define TAKE_OVER_PAUSE_NS 20000
#define WORD_BITS (8 * sizeof(unsigned long))

struct stage {
	struct chain_memory *memory;
	const struct plan_stage *plan;
	struct stage_state *state;
	struct nf_instance nf;
	struct turn_watch turn;
	struct chain_log *log;
	uint32_t burst, most_behind, room;
	bool mbufs;
};

bool hop_may_run(const struct chain_plan *plan, const struct hop *hop, uint32_t most_behind)
{
	if (__atomic_load_n(&hop->held, __ATOMIC_RELAXED) || chain_ring_count(hop->ring) == 0)
		return false;
	return !plan->local || hop->last || chain_ring_count(hop->next) <= most_behind;
}

static void join_group(const struct plan_stage *plan)
{
	char path[PLAN_PATH_BYTES + 16];
	int file;

	if (!plan->group[0])
		return;
	snprintf(path, sizeof(path), "%s/cgroup.procs", plan->group);
	file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, "0", 1) != 1)
		fail(EXIT_TESTBED, "run as root, or have the group delegated to you", "stage '%s' cannot join '%s': %s", plan->name,
		     plan->group, strerror(errno));
	close(file);
}

static void take_place(const struct stage *stage)
{
	const struct plan_stage *plan = stage->plan;
	struct sched_param parameter = { .sched_priority = 0 };
	int policy = SCHED_OTHER;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)plan->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		fail(EXIT_TESTBED, "`nproc` says how many there are", "stage '%s' cannot run on CPU %d: %s", plan->name, plan->cpu,
		     strerror(errno));
	sched_setscheduler(0, SCHED_OTHER, &parameter); /* a manager's priority would keep its child out of a group */
	join_group(plan);
	if (strcmp(plan->scheduler, "batch") == 0)
		policy = SCHED_BATCH;
	if (strcmp(plan->scheduler, "rr") == 0) {
		policy = SCHED_RR;
		parameter.sched_priority = ROUND_ROBIN_PRIORITY;
	}
	if (sched_setscheduler(0, policy, &parameter) != 0)
		stage->state->scheduler_error = errno;
}

/* Hand on what was not refused; what does not fit is lost, and the work with it. */
static void hand_on(struct stage *stage, struct hop *hop, struct chain_buffer **buffers, const struct packet *packets,
		    uint32_t count, uint64_t now)
{
	void *onward[BURST_MOST], *back[BURST_MOST];
	uint32_t passed = 0, dropped = 0, put;

	for (uint32_t i = 0; i < count; i++) {
		struct chain_buffer *buffer = buffers[i];

		if (packets[i].verdict != VERDICT_SEND) {
			back[dropped++] = buffer;
			continue;
		}
		buffer->offset = (uint32_t)(packets[i].data - buffer->bytes);
		buffer->length = packets[i].length;
		if (hop->last)
			buffer->left_ticks = now;
		else
			buffer->queued_ticks = now;
		onward[passed++] = buffer;
	}
	counter_add(&stage->state->refused, dropped);
	put = chain_ring_put(hop->next, onward, passed);
	if (!hop->last) {
		counter_add(&hop[1].offered, passed);
		counter_add(&hop[1].lost, passed - put);
	}
	for (uint32_t i = put; i < passed; i++)
		back[dropped++] = onward[i];
	if (dropped)
		chain_ring_put(stage->state->returned, back, dropped);
	counter_add(&hop->taken, count);
}

/* Packets at the beginning that are of the same chain: all, unless chains share the ring. */
static uint32_t of_one_chain(const struct stage *stage, struct chain_buffer *const *buffers, uint32_t count)
{
	uint32_t some = 1;

	if (!stage->memory->plan->shared)
		return count;
	while (some < count && buffers[some]->chain == buffers[0]->chain)
		some++;
	return some;
}

static uint32_t work(struct stage *stage, struct hop *hop)
{
	void *entries[BURST_MOST];
	struct packet packets[BURST_MOST];
	struct chain_buffer *buffers[BURST_MOST];
	uint32_t count = chain_ring_take(hop->ring, entries, stage->burst);
	uint64_t now;

	for (uint32_t i = 0; i < count; i++) {
		buffers[i] = entries[i];
		__builtin_prefetch(buffers[i], 1);
		__builtin_prefetch(buffers[i]->bytes + HEADROOM, 1);
	}
	for (uint32_t i = 0; i < count; i++)
		packets[i] = (struct packet){ .data = buffers[i]->bytes + buffers[i]->offset, .length = buffers[i]->length,
					      .verdict = VERDICT_SEND, .port = (uint16_t)buffers[i]->chain };
	if (count == 0)
		return 0;
	if (stage->mbufs)
		chain_mbufs_lend(packets, buffers, count, stage->room);
	stage->nf.nf->process(&stage->nf, packets, count);
	if (stage->log)
		chain_log_add(stage->log, packets, count);
	now = clock_ticks();
	turn_add(&stage->turn, &stage->state->turns, now, count);
	for (uint32_t i = 0, some; i < count; i += some) {
		some = of_one_chain(stage, buffers + i, count - i);
		hand_on(stage, stage->state->of_chain[buffers[i]->chain], buffers + i, packets + i, some, now);
	}
	counter_add(&stage->state->served, count);
	return count;
}

/* What a packet of this burst cost, since the manager asked. */
static void keep_sample(struct stage_state *state, uint64_t begin, uint32_t count)
{
	uint64_t now = clock_ticks();
	struct cost_sample *sample = &state->samples[state->samples_taken % SAMPLES];

	__atomic_store_n(&sample->ticks_per_packet, (now - begin) / count, __ATOMIC_RELAXED);
	__atomic_store_n(&sample->at_ticks, now, __ATOMIC_RELAXED);
	__atomic_store_n(&state->samples_taken, state->samples_taken + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&state->sample_wanted, 0, __ATOMIC_RELAXED);
}

static uint32_t work_and_sample(struct stage *stage, struct hop *hop)
{
	uint64_t begin;
	uint32_t count;

	if (!__atomic_load_n(&stage->state->sample_wanted, __ATOMIC_RELAXED))
		return work(stage, hop);
	begin = clock_ticks();
	count = work(stage, hop);
	if (count)
		keep_sample(stage->state, begin, count);
	return count;
}

static bool something_to_do(const struct stage *stage)
{
	for (unsigned h = 0; h < stage->state->hop_count; h++)
		if (hop_may_run(stage->memory->plan, stage->state->hops[h], stage->most_behind))
			return true;
	return stage->memory->stop || __atomic_load_n(&stage->state->leave, __ATOMIC_ACQUIRE);
}

/* Sleep until the manager finds something for us. It clears the word; a look in between keeps a wake-up from being lost. */
static void sleep_until_woken(const struct stage *stage)
{
	uint32_t *word = &stage->state->asleep;

	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	if (something_to_do(stage)) {
		__atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
		return;
	}
	counter_add(&stage->state->sleeps, 1);
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0);
}

static void serve(struct stage *stage)
{
	const struct chain_plan *plan = stage->memory->plan;

	while (!stage->memory->stop && !__atomic_load_n(&stage->state->leave, __ATOMIC_ACQUIRE)) {
		bool idle = true;

		for (unsigned h = 0; h < stage->state->hop_count; h++)
			if (hop_may_run(plan, stage->state->hops[h], stage->most_behind) &&
			    work_and_sample(stage, stage->state->hops[h]))
				idle = false;
		if (idle) {
			sleep_until_woken(stage);
			turn_begin(&stage->turn, clock_ticks());
		}
	}
}

/* All memory that is not there yet comes from one node. */
static void keep_memory_on(const struct stage *stage, int node)
{
	unsigned long mask[NODES_MOST / WORD_BITS] = { 0 };

	if (node < 0)
		return;
	mask[(unsigned)node / WORD_BITS] = 1ul << ((unsigned)node % WORD_BITS);
	if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, NODES_MOST + 1) != 0)
		fail(EXIT_TESTBED, "`numactl --hardware` says which nodes there are", "stage '%s' cannot have its memory on node %d: %s",
		     stage->plan->name, node, strerror(errno));
}

/* Wait until the process before us has handed on what it held; its rings are as it left them. */
static void take_over(const struct stage *stage)
{
	const struct timespec pause = { 0, TAKE_OVER_PAUSE_NS };

	__atomic_store_n(&stage->state->heir_ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stage->state->left, __ATOMIC_ACQUIRE) && !stage->memory->stop)
		nanosleep(&pause, NULL);
	stage->state->taken_over_ticks = clock_ticks();
	__atomic_store_n(&stage->state->leave, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&stage->state->left, 0, __ATOMIC_RELEASE);
}

static void hand_over(struct stage_state *state)
{
	struct timespec now;
	struct rusage usage;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	getrusage(RUSAGE_SELF, &usage);
	state->before_ns += (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	state->before_voluntary += (uint64_t)usage.ru_nvcsw;
	state->before_involuntary += (uint64_t)usage.ru_nivcsw;
	state->left_ticks = clock_ticks();
	__atomic_store_n(&state->left, 1, __ATOMIC_RELEASE);
}

_Noreturn void chain_stage_run(struct chain_memory *memory, unsigned number, const struct plan_move *move)
{
	const struct chain_plan *plan = memory->plan;
	struct stage stage = { .memory = memory, .plan = &plan->stages[number], .state = &memory->stages[number] };
	struct options *options = (struct options *)&plan->stages[number].options;

	prctl(PR_SET_NAME, stage.plan->name);
	signal(SIGINT, SIG_IGN); /* the manager ends us; Ctrl-C reaches the whole group */
	signal(SIGTERM, SIG_DFL);
	stage.nf = (struct nf_instance){ .nf = nf_find(options->nf), .options = options, .number = 0, .data_pages = "" };
	stage.burst = (uint32_t)knob_integer(options, KNOB_BURST);
	stage.room = (uint32_t)(memory->buffer_stride - sizeof(struct chain_buffer));
	stage.most_behind = plan->ring - 1 > stage.burst ? plan->ring - 1 - stage.burst : 0;
	take_place(&stage);
	if (move)
		keep_memory_on(&stage, move->node);
	platform_start(options);
	platform_hide();
	stage.mbufs = stage.nf.nf->needs_mbufs;
	if (stage.mbufs)
		chain_mbufs_take();
	stage.nf.nf->start(&stage.nf);
	stage.log = chain_log_open(stage.plan);
	if (move)
		take_over(&stage);
	else
		__atomic_store_n(&stage.state->ready, 1, __ATOMIC_RELEASE);
	stage.turn.first = (uint64_t)(clock_hz() / TURN_FIRST_HZ);
	turn_begin(&stage.turn, clock_ticks());
	serve(&stage);
	if (!memory->stop)
		hand_over(stage.state);
	platform_stop();
	_Exit(0);
}
