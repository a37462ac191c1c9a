/*
 * The manager of chains: OpenNetVM's and NFVnice's (SIGCOMM'17) in one loop. It brings traffic in and out, sets marks,
 * wakes stages, asks for a sample of their costs every millisecond, and says every ten what it sees; the weights of the
 * stages are decided by whoever reads that, and written into their control groups.
 */
#define _GNU_SOURCE
#include "chain.h"

#include "chain_children.h"
#include "chain_groups.h"
#include "chain_report.h"
#include "clock.h"
#include "message.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANAGER_PRIORITY 2 /* above the stages' 1 */
#define TIMER_SLACK_NS 1000

struct manager {
	struct chain_memory *memory;
	struct chain_source *source;
	struct chain_marks marks;
	struct chain_children children;
	struct chain_snapshot first, last;
	struct chain_looks looks;
	uint64_t begin, next_sample, next_observation, warm;
	bool warmed;
	int code;
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
	(void)number;
	stop_requested = 1;
}

static void catch_signals(bool die_with_parent)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() == 1)
			stop_requested = 1;
	}
}

/* Close to the clock whatever else runs here; without the right to it, as the kernel sees fit. */
static bool go_first(int cpu)
{
	struct sched_param parameter = { .sched_priority = MANAGER_PRIORITY };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		fail(EXIT_TESTBED, "`nproc` says how many there are", "the manager cannot run on CPU %d: %s", cpu, strerror(errno));
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	return sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
}

static bool await_stages(struct manager *manager)
{
	const struct timespec pause = { 0, 1000000 };

	for (unsigned s = 0; s < manager->memory->plan->stage_count; s++)
		while (!__atomic_load_n(&manager->memory->stages[s].ready, __ATOMIC_ACQUIRE)) {
			manager->code = chain_children_ended(&manager->children);
			if (manager->code || stop_requested)
				return false;
			nanosleep(&pause, NULL);
		}
	return true;
}

static void want_samples(const struct manager *manager)
{
	for (unsigned s = 0; s < manager->memory->plan->stage_count; s++)
		__atomic_store_n(&manager->memory->stages[s].sample_wanted, 1, __ATOMIC_RELAXED);
}

static uint64_t ticks(double seconds)
{
	return (uint64_t)(seconds * clock_hz());
}

/* What is done less often than every look: samples, observations, the end of the warm-up, ended stages. */
static void do_seldom(struct manager *manager, uint64_t now)
{
	const struct chain_plan *plan = manager->memory->plan;

	if (plan->sample_us > 0 && now >= manager->next_sample) {
		manager->next_sample = now + ticks(plan->sample_us / 1e6);
		want_samples(manager);
	}
	if (!manager->warmed && now >= manager->warm) {
		manager->warmed = true;
		chain_snapshot_take(&manager->first, manager->memory, manager->source, &manager->marks);
	}
	if (now >= manager->next_observation) {
		manager->next_observation += ticks(plan->observe_ms / 1e3);
		chain_report_observation(&manager->looks, manager->memory, manager->source, &manager->marks,
					 (double)(now - manager->begin) / clock_hz());
		manager->code = chain_children_ended(&manager->children);
		chain_children_hear(&manager->children);
	}
}

static void look(struct manager *manager)
{
	uint64_t now = clock_ticks();

	manager->marks.looks++;
	if (manager->memory->plan->pressure)
		chain_marks_update(&manager->marks, manager->memory, now);
	chain_source_collect(manager->source);
	if (manager->memory->plan->ecn)
		chain_marks_ecn(&manager->marks, manager->memory);
	chain_source_offer(manager->source, now, &manager->marks);
	chain_children_move(&manager->children, (double)(now - manager->begin) * 1e3 / clock_hz());
	do_seldom(manager, now);
}

static void manage(struct manager *manager)
{
	const struct chain_plan *plan = manager->memory->plan;
	const struct timespec pause = { 0, (long)(plan->poll_us * 1e3) };
	uint64_t end;

	manager->begin = manager->next_sample = clock_ticks();
	manager->warm = manager->begin + ticks(plan->warm_up_ms / 1e3);
	manager->next_observation = manager->begin + ticks(plan->observe_ms / 1e3);
	end = manager->warm + ticks(plan->seconds);
	chain_source_start(manager->source, manager->begin);
	while (!stop_requested && !manager->code && !ferror(stdout) && clock_ticks() < end) {
		look(manager);
		nanosleep(&pause, NULL);
	}
	if (!manager->warmed)
		chain_snapshot_take(&manager->first, manager->memory, manager->source, &manager->marks);
	chain_snapshot_take(&manager->last, manager->memory, manager->source, &manager->marks);
}

int chain_run(const struct options *options)
{
	struct chain_plan *plan = chain_plan_read(options->chain);
	static struct manager manager;
	bool first;

	catch_signals(options->die_with_parent);
	clock_hz(); /* measured once, before the processes part */
	manager.memory = chain_memory_create(plan);
	manager.marks = chain_marks_of(plan);
	chain_groups_make(plan);
	chain_children_start(&manager.children, manager.memory, plan);
	manager.source = chain_source_create(manager.memory);
	first = go_first(plan->manager_cpu);
	if (await_stages(&manager)) {
		chain_report_ready(manager.memory, first);
		manage(&manager);
		if (!manager.code)
			chain_report_end(manager.memory, &manager.first, &manager.last);
	}
	chain_source_end(manager.source);
	chain_children_end(&manager.children);
	chain_groups_remove(plan);
	return manager.code ? manager.code : ferror(stdout) ? EXIT_TESTBED : 0;
}
