/* Deep packet inspection: look for thousands of strings in every payload, count or drop what matches. */
#include "headers.h"
#include "matcher.h"
#include "message.h"
#include "nf.h"
#include "random.h"
#include "text_file.h"

#include <stdio.h>
#include <stdlib.h>

#define GENERATED_LETTERS 12

enum { COUNTER_MATCHES, COUNTER_PACKETS, COUNTER_BYTES };

struct dpi {
	struct matcher *matcher;
	bool drop;
};

static struct matcher *read_patterns(const struct options *options)
{
	struct text_file file = text_file_read(options->patterns_file);
	struct matcher *matcher;

	if (file.count == 0)
		fail(EXIT_USAGE, "one string per line", "'%s' holds no pattern", options->patterns_file);
	matcher = matcher_create(file.lines, file.count, options->regex);
	text_file_release(&file);
	return matcher;
}

/* Random lower-case words: they share prefixes, as signatures do. */
static struct matcher *generate_patterns(const struct options *options)
{
	uint32_t count = (uint32_t)options->patterns;
	char *text = allocate(count, GENERATED_LETTERS + 1), **patterns = allocate(count, sizeof(*patterns));
	uint64_t seed = (uint64_t)options->seed;
	struct matcher *matcher;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bits = random_next(&seed);

		patterns[i] = text + i * (GENERATED_LETTERS + 1);
		for (unsigned letter = 0; letter < GENERATED_LETTERS; letter++, bits /= 26)
			patterns[i][letter] = (char)('a' + bits % 26);
	}
	matcher = matcher_create(patterns, count, false);
	free(text);
	free(patterns);
	return matcher;
}

static void dpi_start(struct nf_instance *self)
{
	struct dpi *state = allocate(1, sizeof(*state));

	state->matcher = self->options->patterns_file ? read_patterns(self->options) : generate_patterns(self->options);
	state->drop = self->options->drop_matches;
	self->state = state;
	self->counters[COUNTER_MATCHES].name = "matches";
	self->counters[COUNTER_PACKETS].name = "matching_packets";
	self->counters[COUNTER_BYTES].name = "scanned_bytes";
}

static void dpi_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct dpi *state = self->state;

	for (uint32_t i = 0; i < count; i++) {
		struct headers headers = headers_find(&packets[i]);
		uint32_t matches = matcher_scan(state->matcher, headers.payload, headers.payload_bytes);

		counter_add(&self->counters[COUNTER_MATCHES].value, matches);
		counter_add(&self->counters[COUNTER_PACKETS].value, matches > 0);
		counter_add(&self->counters[COUNTER_BYTES].value, headers.payload_bytes);
		if (matches && state->drop)
			packets[i].verdict = VERDICT_DROP;
	}
	counter_add(&self->accesses, count);
}

static void dpi_stop(struct nf_instance *self)
{
	struct dpi *state = self->state;

	matcher_release(state->matcher);
	free(state);
}

const struct nf nf_dpi = {
	.name = "dpi",
	.summary = "searches payloads for thousands of strings (hyperscan), counts or drops matches",
	.start = dpi_start,
	.process = dpi_process,
	.stop = dpi_stop,
};
