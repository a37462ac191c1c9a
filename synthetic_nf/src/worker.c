/* One instance: fetch, work, send. */
#define _GNU_SOURCE
#include "worker.h"

#include "clock.h"
#include "message.h"
#include "platform.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define QUEUE_PACKETS 1024        /* what a NIC's receive ring would hold */
#ifndef SLICE_SECONDS
#define SLICE_SECONDS 0.001       /* counters move at least this often, however heavy a packet is */
#endif

volatile int worker_stop_requested;
volatile int worker_go;

void worker_prepare(struct worker *worker, const struct options *options, unsigned number, int cpu)
{
	double rate_mpps = options->knobs[KNOB_RATE_MPPS];

	worker->nf.nf = nf_find(options->nf);
	worker->nf.options = options;
	worker->nf.number = number;
	worker->nf.data_pages = "";
	worker->cpu = cpu;
	worker->io = packet_io_open(options, number);
	worker->limit = packet_io_limit(worker->io);
	if (options->packets > 0 && (worker->limit == 0 || (uint64_t)options->packets < worker->limit))
		worker->limit = (uint64_t)options->packets;
	worker->ticks_per_packet = rate_mpps > 0 ? clock_hz() / (rate_mpps * 1e6) : 0;
}

/* Packets that are due by the offered load; what does not fit into the queue is lost, as in a NIC. */
static uint32_t pace(struct worker *worker, uint64_t now, uint32_t most)
{
	uint64_t arrived, backlog;

	if (worker->pace_start == 0)
		worker->pace_start = now;
	arrived = (uint64_t)((double)(now - worker->pace_start) / worker->ticks_per_packet);
	backlog = arrived > worker->pace_served ? arrived - worker->pace_served : 0;
	if (backlog > QUEUE_PACKETS) {
		counter_add(&worker->counters.queue_drops, backlog - QUEUE_PACKETS);
		worker->pace_served += backlog - QUEUE_PACKETS;
		backlog = QUEUE_PACKETS;
	}
	return backlog < most ? (uint32_t)backlog : most;
}

/* A port that had fewer packets than were due sets the pace itself: begin anew from now. */
static void restart_pace(struct worker *worker, uint64_t now)
{
	worker->pace_start = now;
	worker->pace_served = 0;
}

static void record_latency(struct worker *worker, uint64_t fetched, uint64_t sent, uint32_t count)
{
	if (worker->ticks_per_packet == 0) {
		histogram_add(&worker->latency, sent - fetched, count);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		double offset = (double)(++worker->pace_served) * worker->ticks_per_packet;
		uint64_t arrival = worker->pace_start + (uint64_t)offset;

		histogram_add(&worker->latency, sent > arrival ? sent - arrival : 0, 1);
	}
}

/* Work on some packets of a burst and send them. */
static void handle(struct worker *worker, struct packet *packets, uint32_t count, uint64_t fetched)
{
	uint64_t bytes = 0, sent_bytes = 0, denied = 0, sent;

	for (uint32_t i = 0; i < count; i++)
		bytes += packets[i].length;
	worker->nf.nf->process(&worker->nf, packets, count);
	for (uint32_t i = 0; i < count; i++) {
		denied += packets[i].verdict != VERDICT_SEND;
		sent_bytes += packets[i].verdict == VERDICT_SEND ? packets[i].length : 0;
	}
	sent = packet_io_send(worker->io, packets, count);
	if (sent < count - denied && count > denied) /* a full port: its share of the bytes */
		sent_bytes = sent_bytes * sent / (count - denied);
	counter_add(&worker->counters.packets, count);
	counter_add(&worker->counters.bytes, bytes);
	counter_add(&worker->counters.sent, sent);
	counter_add(&worker->counters.sent_bytes, sent_bytes);
	counter_add(&worker->counters.denied, denied);
	counter_add(&worker->counters.send_drops, count - denied - sent);
	record_latency(worker, fetched, clock_ticks(), count);
}

/* How many packets of a burst to work on before the counters move: all, unless they are very heavy. */
static uint32_t slice_of(const struct worker *worker, uint32_t count)
{
	const struct worker_counters *counters = &worker->counters;
	double ticks_each, slice;

	if (counters->packets == 0)
		return 1;
	ticks_each = (double)counters->busy_ticks / (double)counters->packets;
	slice = SLICE_SECONDS * clock_hz() / (ticks_each + 1);
	return slice >= count ? count : slice < 1 ? 1 : (uint32_t)slice;
}

/* Packets to fetch now: a burst, less what the limit or the offered load forbids. */
static uint32_t allowance(struct worker *worker, uint64_t now)
{
	uint32_t most = (uint32_t)knob_integer(worker->nf.options, KNOB_BURST);

	if (worker->limit && worker->limit - worker->counters.packets < most)
		most = (uint32_t)(worker->limit - worker->counters.packets);
	return worker->ticks_per_packet > 0 ? pace(worker, now, most) : most;
}

bool worker_step(struct worker *worker)
{
	struct packet packets[BURST_MOST];
	uint64_t begin = clock_ticks();
	uint32_t wanted = allowance(worker, begin), count, done = 0;

	count = wanted ? packet_io_receive(worker->io, packets, wanted) : 0;
	if (count < wanted && worker->ticks_per_packet > 0)
		restart_pace(worker, begin);
	while (done < count) {
		uint32_t some = slice_of(worker, count - done);
		uint64_t now;

		handle(worker, packets + done, some, done ? clock_ticks() : begin);
		now = clock_ticks();
		counter_add(&worker->counters.busy_ticks, now - begin);
		begin = now;
		done += some;
	}
	return count > 0;
}

static void pin(const struct worker *worker)
{
	cpu_set_t set;

	if (worker->cpu == UNPINNED)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)worker->cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0)
		fail(EXIT_TESTBED, "`nproc` says how many there are", "cannot run on CPU %d: %s", worker->cpu, strerror(errno));
}

static void *run(void *context)
{
	struct worker *worker = context;

	pin(worker); /* before any memory is touched, so that it is local */
	platform_enter_thread();
	worker->nf.nf->start(&worker->nf);
	__atomic_store_n(&worker->ready, true, __ATOMIC_RELEASE);
	while (!worker_go && !worker_stop_requested)
		sched_yield();
	while (!worker_stop_requested && (worker->limit == 0 || worker->counters.packets < worker->limit))
		worker_step(worker);
	worker->processor_ns = clock_thread_nanoseconds();
	__atomic_store_n(&worker->finished, true, __ATOMIC_RELEASE);
	return NULL;
}

uint64_t worker_processor_ns(const struct worker *worker)
{
	clockid_t clock;
	struct timespec now;

	if (!__atomic_load_n(&worker->finished, __ATOMIC_ACQUIRE) && pthread_getcpuclockid(worker->thread, &clock) == 0 &&
	    clock_gettime(clock, &now) == 0)
		return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return worker->processor_ns; /* the thread's own last word */
}

void worker_launch(struct worker *worker)
{
	int result = pthread_create(&worker->thread, NULL, run, worker);

	if (result != 0)
		fail(EXIT_TESTBED, "lower --instances", "cannot start a thread: %s", strerror(result));
}

void worker_join(struct worker *worker)
{
	pthread_join(worker->thread, NULL);
	worker->nf.nf->stop(&worker->nf);
}
