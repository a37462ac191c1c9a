/* One instance: a pinned thread that fetches bursts, lets the network function work on them, and sends them. */
#ifndef SLOMO_WORKER_H
#define SLOMO_WORKER_H

#include "histogram.h"
#include "nf.h"
#include "packet_io.h"

#include <pthread.h>
#include <stdbool.h>

#define WORKERS_MOST 64
#define UNPINNED (-1)

/* Totals since the start; written by the worker only, with relaxed stores. */
struct worker_counters {
	uint64_t packets, bytes; /* received */
	uint64_t sent, sent_bytes;
	uint64_t denied;      /* dropped by the network function */
	uint64_t send_drops;  /* not taken by the port */
	uint64_t queue_drops; /* offered load that found the queue of the paced source full */
	uint64_t busy_ticks;  /* in bursts that held packets */
};

struct worker {
	struct nf_instance nf;
	struct packet_io *io;
	int cpu; /* UNPINNED, or the CPU it is bound to */
	pthread_t thread;
	struct worker_counters counters;
	struct histogram latency; /* [ticks] from arrival to sent */
	uint64_t limit;           /* packets; 0: none */
	double ticks_per_packet;  /* of the offered load; 0: as fast as possible */
	uint64_t pace_start, pace_served;
	bool ready, finished;
	uint64_t processor_ns; /* processor time of the thread, once it has finished */
};

/* Processor time of the worker's thread so far [ns]. */
uint64_t worker_processor_ns(const struct worker *worker);


/* Set once, by a signal or by the main thread: all workers come to an end. */
extern volatile int worker_stop_requested;
/* Set once all are ready. */
extern volatile int worker_go;

void worker_prepare(struct worker *worker, const struct options *options, unsigned number, int cpu);
void worker_launch(struct worker *worker);
void worker_join(struct worker *worker);

/* One burst; false when there was nothing to do. Also used by the calibration, without a thread. */
bool worker_step(struct worker *worker);

#endif
