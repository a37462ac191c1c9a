/*
 * Proof that the competitor presses as hard as a plain loop: both run in turn, in the same process, on the same core,
 * over the same kind of pages, several times; medians and the median of the pairwise ratios are printed. Rates are per
 * second of processor time, so that another program on the core does not count.
 *
 * The plain loops know nothing of packets: an array of words, one word read per cache line. Of the two plain streams
 * the faster one on this machine is the measure.
 */
#include "calibrate.h"

#include "clock.h"
#include "memory.h"
#include "random.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 15
#define SECONDS 0.07 /* of each turn, unless --duration-s says how long a pattern may take */
#define WORDS_PER_LINE 8u
#define PLACES 8u
#define CHUNK 65536u /* accesses between two looks at the clock */
#define READS_PER_PACKET 4096

static volatile uint64_t sink; /* what the plain loops read ends here, so that they must read it */

struct plain {
	struct region region;
	uint64_t *words;
	uint64_t lines, position;
};

static void plain_sequential(struct plain *plain, uint64_t reads)
{
	uint64_t sum = 0, end = plain->position + reads;

	if (end > plain->lines) { /* begin again rather than test for the end at every line */
		plain->position = 0;
		end = reads;
	}
	for (uint64_t i = plain->position; i < end; i++)
		sum += plain->words[i * WORDS_PER_LINE];
	plain->position = end;
	sink += sum;
}

/* The same with eight places side by side, which most machines read faster; the better of the two is the measure. */
static void plain_streams(struct plain *plain, uint64_t reads)
{
	uint64_t sum = 0, stride = plain->lines / PLACES * WORDS_PER_LINE, rows = reads / PLACES;
	const uint64_t *words;

	if (plain->position + rows > plain->lines / PLACES)
		plain->position = 0;
	words = plain->words + plain->position * WORDS_PER_LINE;
	for (uint64_t i = 0; i < rows; i++)
		for (unsigned place = 0; place < PLACES; place++)
			sum += words[place * stride + i * WORDS_PER_LINE];
	plain->position += rows;
	sink += sum;
}

static void plain_random(struct plain *plain, uint64_t reads)
{
	uint64_t sum = 0, state = plain->position;

	for (uint64_t i = 0; i < reads; i++) {
		state = random_step(state);
		sum += plain->words[random_below(state, plain->lines) * WORDS_PER_LINE];
	}
	plain->position = state;
	sink += sum;
}

static void plain_chain(struct plain *plain, uint64_t reads)
{
	uint64_t at = plain->position;

	for (uint64_t i = 0; i < reads; i++)
		at = plain->words[at * WORDS_PER_LINE];
	plain->position = at;
	sink += at;
}

typedef void (*plain_loop)(struct plain *plain, uint64_t reads);

static const plain_loop PLAIN[] = {
	[PATTERN_RANDOM] = plain_random,
	[PATTERN_CHAIN] = plain_chain,
	[PATTERN_SEQUENTIAL] = plain_streams,
};

/* One cycle through all lines (Sattolo), so that the chase of word 0 visits each. */
static void fill(struct plain *plain)
{
	uint64_t seed = 7;

	for (uint64_t i = 0; i < plain->lines; i++)
		plain->words[i * WORDS_PER_LINE] = i;
	for (uint64_t i = plain->lines - 1; i > 0; i--) {
		uint64_t other = random_below(random_next(&seed), i) * WORDS_PER_LINE, kept = plain->words[i * WORDS_PER_LINE];

		plain->words[i * WORDS_PER_LINE] = plain->words[other];
		plain->words[other] = kept;
	}
}

static uint64_t turn_ns;

static double plain_rate(struct plain *plain, plain_loop loop)
{
	uint64_t begin = clock_thread_nanoseconds(), now, reads = 0;
	uint64_t chunk = plain->lines < CHUNK ? plain->lines : CHUNK;

	plain->position = 0;
	do {
		loop(plain, chunk);
		reads += chunk;
		now = clock_thread_nanoseconds();
	} while (now - begin < turn_ns);
	return (double)reads * 1e9 / (double)(now - begin);
}

static double competitor_rate(struct worker *worker)
{
	uint64_t begin = clock_thread_nanoseconds(), now, before = worker->nf.accesses;

	do {
		worker_step(worker);
		now = clock_thread_nanoseconds();
	} while (now - begin < turn_ns);
	return (double)(worker->nf.accesses - before) * 1e9 / (double)(now - begin);
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), ascending);
	return values[ROUNDS / 2];
}

static void report(const struct options *options, const struct worker *worker, const double *plain, const double *competitor)
{
	double ratios[ROUNDS], plains[ROUNDS], competitors[ROUNDS], ratio;

	for (unsigned i = 0; i < ROUNDS; i++)
		ratios[i] = competitor[i] / plain[i];
	memcpy(plains, plain, sizeof(plains));
	memcpy(competitors, competitor, sizeof(competitors));
	ratio = median(ratios);
	printf("{\"event\":\"calibration\",\"pattern\":\"%s\",\"data_size_mib\":%.15g,\"reads_per_packet\":%.0f,\"data_pages\":\"%s\"",
	       PATTERN_WORDS[knob_integer(options, KNOB_PATTERN)], options->knobs[KNOB_DATA_SIZE_MIB],
	       options->knobs[KNOB_READS_PER_PACKET], worker->nf.data_pages);
	printf(",\"plain_accesses_per_s\":%.0f,\"competitor_accesses_per_s\":%.0f,\"plain_gb_per_s\":%.3f,\"competitor_gb_per_s\":%.3f",
	       median(plains), median(competitors), median(plains) * 64 / 1e9, median(competitors) * 64 / 1e9);
	printf(",\"ratio\":%.4f,\"ratio_least\":%.4f,\"ratio_most\":%.4f,\"rounds\":%d}\n", ratio, ratios[0], ratios[ROUNDS - 1],
	       ROUNDS);
	fflush(stdout);
}

static void calibrate_pattern(struct options options, unsigned pattern, int cpu)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	uint64_t bytes = (uint64_t)(options.knobs[KNOB_DATA_SIZE_MIB] * 1048576.0);
	struct plain plain = { .lines = bytes / 64 };
	double plain_rates[ROUNDS], competitor_rates[ROUNDS];
	plain_loop loop;

	options.knobs[KNOB_PATTERN] = pattern;
	worker_prepare(worker, &options, 0, cpu);
	worker->nf.nf->start(&worker->nf);
	plain.region = region_take(bytes, options.pages);
	plain.words = plain.region.base;
	fill(&plain);
	loop = PLAIN[pattern];
	if (pattern == PATTERN_SEQUENTIAL && plain_rate(&plain, plain_sequential) > plain_rate(&plain, plain_streams))
		loop = plain_sequential;
	plain_rate(&plain, loop); /* warm up both */
	competitor_rate(worker);
	for (unsigned i = 0; i < ROUNDS; i++) {
		plain_rates[i] = plain_rate(&plain, loop);
		competitor_rates[i] = competitor_rate(worker);
	}
	report(&options, worker, plain_rates, competitor_rates);
	region_release(&plain.region);
	worker->nf.nf->stop(&worker->nf);
	packet_io_close(worker->io);
	free(worker);
}

void calibrate(const struct options *given, int cpu)
{
	struct options options = *given;

	turn_ns = (uint64_t)((options.duration_s > 0 ? options.duration_s / (2 * ROUNDS) : SECONDS) * 1e9);
	options.nf = "synthetic";
	options.knobs[KNOB_INSTANCES] = 1;
	options.knobs[KNOB_RATE_MPPS] = 0;
	options.packets = 0;
	if (!options.knob_given[KNOB_DATA_SIZE_MIB])
		options.knobs[KNOB_DATA_SIZE_MIB] = 64;
	if (!options.knob_given[KNOB_READS_PER_PACKET])
		options.knobs[KNOB_READS_PER_PACKET] = READS_PER_PACKET;
	for (unsigned pattern = PATTERN_RANDOM; PATTERN_WORDS[pattern]; pattern++)
		if (!options.knob_given[KNOB_PATTERN] || pattern == knob_integer(given, KNOB_PATTERN))
			calibrate_pattern(options, pattern, cpu);
}
