/* slomo-nf: a tunable competitor and real network functions, one process, statistics as JSON lines. */
#define _GNU_SOURCE
#include "calibrate.h"
#include "chain.h"
#include "clock.h"
#include "cores.h"
#include "message.h"
#include "platform.h"
#include "statistics.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef LOOK_NS
#define LOOK_NS 20000000u /* how long an end may go unnoticed */
#endif

static struct worker workers[WORKERS_MOST];
static struct snapshot begins[WORKERS_MOST], lasts[WORKERS_MOST];

static void on_signal(int signal_number)
{
	(void)signal_number;
	worker_stop_requested = 1;
}

static void catch_signals(const struct options *options)
{
	struct sigaction action = { .sa_handler = on_signal }; /* no SA_RESTART: a blocked write must end */

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (options->die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() == 1)
			worker_stop_requested = 1; /* the parent was faster */
	}
}

static bool all_finished(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!__atomic_load_n(&workers[i].finished, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

static void await_ready(unsigned count)
{
	const struct timespec pause = { 0, 1000000 };

	for (unsigned i = 0; i < count; i++)
		while (!__atomic_load_n(&workers[i].ready, __ATOMIC_ACQUIRE)) {
			if (worker_stop_requested)
				_Exit(0); /* tables are being built: nothing to report, nothing to give back */
			nanosleep(&pause, NULL);
		}
}

/* Sleep until `deadline_ns`, in short steps so that an end is noticed. */
static void sleep_until(uint64_t deadline_ns, unsigned count)
{
	uint64_t now = clock_nanoseconds();

	while (now < deadline_ns && !worker_stop_requested && !all_finished(count)) {
		uint64_t left = deadline_ns - now;
		const struct timespec pause = { 0, (long)(left < LOOK_NS ? left : LOOK_NS) };

		nanosleep(&pause, NULL);
		now = clock_nanoseconds();
	}
}

/* Print a line per instance and interval until a signal, the time limit or the end of the traffic. */
static void watch(const struct options *options, unsigned count)
{
	uint64_t begin = begins[0].nanoseconds, interval = (uint64_t)(options->interval_s * 1e9);
	uint64_t end = options->duration_s > 0 ? begin + (uint64_t)(options->duration_s * 1e9) : UINT64_MAX;
	struct snapshot now;

	for (uint64_t next = begin + interval; !worker_stop_requested && !all_finished(count); next += interval) {
		sleep_until(next < end ? next : end, count);
		if (clock_nanoseconds() >= end)
			worker_stop_requested = 1;
		if (worker_stop_requested || all_finished(count))
			return;
		for (unsigned i = 0; i < count; i++) {
			snapshot_take(&now, &workers[i]);
			statistics_interval("interval", &workers[i], &begins[i], &lasts[i], &now);
			lasts[i] = now;
		}
		if (ferror(stdout))
			worker_stop_requested = 1; /* nobody reads any more */
	}
}

static void run(const struct options *options, const int *cpus, unsigned count)
{
	struct snapshot now;

	for (unsigned i = 0; i < count; i++)
		worker_prepare(&workers[i], options, i, cpus[i]);
	for (unsigned i = 0; i < count; i++)
		worker_launch(&workers[i]);
	await_ready(count);
	platform_publish(workers, count);
	statistics_ready(workers, count);
	for (unsigned i = 0; i < count; i++) {
		snapshot_take(&begins[i], &workers[i]);
		lasts[i] = begins[i];
	}
	worker_go = 1;
	watch(options, count);
	worker_stop_requested = 1;
	platform_publish(NULL, 0);
	for (unsigned i = 0; i < count; i++) {
		worker_join(&workers[i]);
		snapshot_take(&now, &workers[i]);
		statistics_interval("end", &workers[i], &begins[i], &begins[i], &now);
		packet_io_close(workers[i].io);
	}
}

int main(int argument_count, char **arguments)
{
	struct options options = options_parse(argument_count, arguments);
	unsigned count = (unsigned)knob_integer(&options, KNOB_INSTANCES);
	int cpus[WORKERS_MOST];

	for (unsigned i = 0; i < WORKERS_MOST; i++)
		cpus[i] = UNPINNED;
	if (options.chain)
		return chain_run(&options);
	nf_find(options.nf);
	if (options.cores && cores_parse(options.cores, cpus, WORKERS_MOST) < count)
		fail(EXIT_USAGE, "name one CPU per instance", "%u instances, but --cores is '%s'", count, options.cores);
	platform_start(&options);
	catch_signals(&options);
	if (options.calibrate)
		calibrate(&options, cpus[0]);
	else
		run(&options, cpus, count);
	platform_stop();
	return ferror(stdout) ? EXIT_TESTBED : 0;
}
