/* The tunable competitor: per packet `iterations` times so many reads and writes of a structure of a given size. */
#include "access_patterns.h"
#include "message.h"
#include "nf.h"

enum { COUNTER_READS, COUNTER_WRITES, COUNTER_CHECKSUM, COUNTER_LINES_WRITTEN, COUNTER_WRITES_FOUND };

typedef void (*access_function)(struct access_data *data, uint64_t accesses);

static const access_function READS[] = {
	[PATTERN_RANDOM] = access_read_random,
	[PATTERN_CHAIN] = access_read_chain,
	[PATTERN_SEQUENTIAL] = access_read_sequential,
};
static const access_function WRITES[] = {
	[PATTERN_RANDOM] = access_write_random,
	[PATTERN_CHAIN] = access_write_chain,
	[PATTERN_SEQUENTIAL] = access_write_sequential,
};

struct synthetic {
	struct access_data data;
	access_function read, write;
	uint64_t reads, writes, iterations;
};

static void synthetic_start(struct nf_instance *self)
{
	const struct options *options = self->options;
	struct synthetic *state = allocate(1, sizeof(*state));
	unsigned pattern = (unsigned)knob_integer(options, KNOB_PATTERN);

	access_data_create(&state->data, (uint64_t)(options->knobs[KNOB_DATA_SIZE_MIB] * 1048576.0),
			   (uint64_t)options->seed + self->number, options->pages, pattern == PATTERN_CHAIN);
	state->read = READS[pattern];
	state->write = WRITES[pattern];
	state->reads = knob_integer(options, KNOB_READS_PER_PACKET);
	state->writes = knob_integer(options, KNOB_WRITES_PER_PACKET);
	state->iterations = knob_integer(options, KNOB_ITERATIONS);
	self->state = state;
	self->data_bytes = state->data.region.bytes;
	self->data_pages = state->data.region.pages;
	self->counters[COUNTER_READS].name = "reads";
	self->counters[COUNTER_WRITES].name = "writes";
	self->counters[COUNTER_CHECKSUM].name = "checksum";
}

/* Work on one packet; the counters move with every packet, since one may take milliseconds. */
static void synthetic_work(struct nf_instance *self)
{
	struct synthetic *state = self->state;

	for (uint64_t i = 0; i < state->iterations; i++) {
		state->read(&state->data, state->reads);
		state->write(&state->data, state->writes);
	}
	counter_add(&self->counters[COUNTER_READS].value, state->iterations * state->reads);
	counter_add(&self->counters[COUNTER_WRITES].value, state->iterations * state->writes);
	counter_add(&self->accesses, state->iterations * (state->reads + state->writes));
}

static void synthetic_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct synthetic *state = self->state;

	(void)packets;
	for (uint32_t i = 0; i < count; i++)
		synthetic_work(self);
	__atomic_store_n(&self->counters[COUNTER_CHECKSUM].value, state->data.checksum, __ATOMIC_RELAXED);
}

static void synthetic_stop(struct nf_instance *self)
{
	struct synthetic *state = self->state;
	struct access_audit audit = access_data_audit(&state->data);

	self->counters[COUNTER_LINES_WRITTEN] = (struct nf_counter){ "lines_written", audit.lines_written };
	self->counters[COUNTER_WRITES_FOUND] = (struct nf_counter){ "writes_found", audit.writes_found };
	access_data_release(&state->data);
}

const struct nf nf_synthetic = {
	.name = "synthetic",
	.summary = "tunable competitor: reads and writes of a data structure, then forwards",
	.start = synthetic_start,
	.process = synthetic_process,
	.stop = synthetic_stop,
};
