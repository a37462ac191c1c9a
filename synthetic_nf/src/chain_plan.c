/* Plans of chains, read and checked. */
#include "chain_plan.h"

#include "message.h"
#include "text_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MOST 64
#define HINT "the plan is written by `slomo chain run`; chain_plan.h says what may stand in it"

struct words {
	char *at[WORDS_MOST];
	int count;
};

struct number {
	const char *name;
	size_t offset;
	double least, most;
};

#define AT(field) offsetof(struct chain_plan, field)
static const struct number NUMBERS[] = {
	{ "high", AT(high), 0.01, 1 },         { "low", AT(low), 0, 1 },
	{ "wait_us", AT(wait_us), 0, 1e6 },    { "poll_us", AT(poll_us), 1, 1e5 },
	{ "sample_us", AT(sample_us), 0, 1e6 }, { "observe_ms", AT(observe_ms), 1, 1e5 },
	{ "observe_change", AT(observe_change), 0, 1 },
	{ "warm_up_ms", AT(warm_up_ms), 0, 1e6 }, { "seconds", AT(seconds), 0.01, 1e9 },
};

static double number_of(const char *name, const char *text, double least, double most)
{
	char *end;
	double number = strtod(text, &end);

	if (end == text || *end || !(number >= least && number <= most))
		fail(EXIT_USAGE, HINT, "the chain's plan has '%s' for %s, which must be %g..%g", text, name, least, most);
	return number;
}

static void copy_text(char *place, size_t room, const char *text)
{
	if ((size_t)snprintf(place, room, "%s", text) >= room)
		fail(EXIT_USAGE, "use shorter names", "'%.40s...' is longer than %zu letters", text, room - 1);
}

static void read_stage(struct chain_plan *plan, struct words *words)
{
	struct plan_stage *stage = &plan->stages[plan->stage_count];
	char **flags;

	if (plan->stage_count == STAGES_MOST || words->count < 5)
		fail(EXIT_USAGE, HINT, "a stage needs a name, CPU, scheduler and group, and there may be %d", STAGES_MOST);
	copy_text(stage->name, sizeof(stage->name), words->at[1]);
	stage->cpu = (int)number_of("a stage's CPU", words->at[2], 0, 4095);
	copy_text(stage->scheduler, sizeof(stage->scheduler), words->at[3]);
	copy_text(stage->group, sizeof(stage->group), strcmp(words->at[4], "-") == 0 ? "" : words->at[4]);
	flags = allocate((unsigned long)words->count, sizeof(char *)); /* stay: options point into them */
	memcpy(flags, words->at, (size_t)words->count * sizeof(char *));
	stage->options = options_parse(words->count - 4, flags + 4); /* the group stands for the program's name */
	plan->stage_count++;
}

static unsigned stage_number(const struct chain_plan *plan, const char *name)
{
	for (unsigned i = 0; i < plan->stage_count; i++)
		if (strcmp(plan->stages[i].name, name) == 0)
			return i;
	fail(EXIT_USAGE, HINT, "the plan names a stage '%s', which there is not", name);
}

static void read_path(struct chain_plan *plan, struct plan_chain *chain, char *text)
{
	char *rest = NULL;

	for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		unsigned stage = stage_number(plan, name);

		if (chain->length == HOPS_MOST)
			fail(EXIT_USAGE, "split it", "chain '%s' has more than %d stages", chain->name, HOPS_MOST);
		for (unsigned i = 0; i < chain->length; i++)
			if (chain->stages[i] == stage)
				fail(EXIT_USAGE, "name a second stage", "chain '%s' comes to '%s' twice", chain->name, name);
		chain->stages[chain->length++] = stage;
	}
}

static void read_chain(struct chain_plan *plan, struct words *words)
{
	struct plan_chain *chain = &plan->chains[plan->chain_count];
	char *rest = NULL;

	if (plan->chain_count == CHAINS_MOST || words->count != 6)
		fail(EXIT_USAGE, HINT, "a chain needs name, rate, flows, sizes and stages, and there may be %d", CHAINS_MOST);
	copy_text(chain->name, sizeof(chain->name), words->at[1]);
	chain->rate_mpps = number_of("a chain's rate", words->at[2], 1e-6, 1e4);
	chain->flows = (uint32_t)number_of("a chain's flows", words->at[3], 1, 1e6);
	for (char *size = strtok_r(words->at[4], ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
		if (chain->size_count == SIZES_MOST)
			fail(EXIT_USAGE, "give fewer", "chain '%s' has more than %d packet sizes", chain->name, SIZES_MOST);
		chain->sizes[chain->size_count++] = (uint32_t)number_of("a packet's size", size, 60, 1514);
	}
	read_path(plan, chain, words->at[5]);
	chain->to_ms = INFINITY;
	plan->chain_count++;
}

static void read_log(struct chain_plan *plan, const struct words *words)
{
	struct plan_stage *stage;

	if (words->count != 6)
		fail(EXIT_USAGE, HINT, "a log needs stage, bytes, buffer, way and directory");
	stage = &plan->stages[stage_number(plan, words->at[1])];
	stage->log_bytes = (uint32_t)number_of("bytes per packet", words->at[2], 1, 65536);
	stage->log_buffer = (uint32_t)number_of("a log's buffer", words->at[3], stage->log_bytes, 64 << 20);
	stage->log_blocking = strcmp(words->at[4], "blocking") == 0;
	copy_text(stage->log_directory, PLAN_PATH_BYTES, words->at[5]);
}

/* The chain that a line of so many words is about. */
static struct plan_chain *chain_of(struct chain_plan *plan, const struct words *words, int count)
{
	for (unsigned c = 0; words->count == count && c < plan->chain_count; c++)
		if (strcmp(plan->chains[c].name, words->at[1]) == 0)
			return &plan->chains[c];
	fail(EXIT_USAGE, HINT, "a line '%s' needs a chain named before, and %d words", words->at[0], count);
}

static void read_tcp(struct chain_plan *plan, const struct words *words)
{
	struct plan_chain *chain = chain_of(plan, words, 3);

	chain->tcp = true;
	chain->rtt_us = number_of("a round trip", words->at[2], 0, 1e6);
	if (chain->sizes[0] < TCP_FRAME_LEAST)
		fail(EXIT_USAGE, "packet_size_b: 1500", "chain '%s' is tcp with frames of %u bytes, needed %d or more",
		     chain->name, chain->sizes[0], TCP_FRAME_LEAST);
}

static void read_when(struct chain_plan *plan, const struct words *words)
{
	struct plan_chain *chain = chain_of(plan, words, 4);

	chain->from_ms = number_of("when a chain begins", words->at[2], 0, 1e12);
	chain->to_ms = number_of("when a chain ends", words->at[3], chain->from_ms, INFINITY);
}

static void read_move(struct chain_plan *plan, const struct words *words)
{
	struct plan_move *move = &plan->moves[plan->move_count];

	if (plan->move_count == MOVES_MOST || words->count != 5)
		fail(EXIT_USAGE, HINT, "a move needs stage, CPU, node and time, and there may be %d", MOVES_MOST);
	move->stage = stage_number(plan, words->at[1]);
	move->cpu = (int)number_of("a move's CPU", words->at[2], 0, 4095);
	move->node = strcmp(words->at[3], "-") == 0 ? -1 : (int)number_of("a move's node", words->at[3], 0, NODES_MOST - 1);
	move->at_ms = number_of("a move's time", words->at[4], 0, 1e12);
	if (plan->move_count && move->at_ms < move[-1].at_ms)
		fail(EXIT_USAGE, HINT, "moves must stand in the order of their time");
	plan->move_count++;
}

static void read_number(struct chain_plan *plan, const struct words *words)
{
	for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++)
		if (strcmp(words->at[0], NUMBERS[i].name) == 0) {
			double *place = (double *)(void *)((char *)plan + NUMBERS[i].offset);

			*place = number_of(NUMBERS[i].name, words->at[1], NUMBERS[i].least, NUMBERS[i].most);
			return;
		}
	fail(EXIT_USAGE, HINT, "the chain's plan has a line '%s'", words->at[0]);
}

static void read_statement(struct chain_plan *plan, struct words *words)
{
	const char *what = words->at[0];

	if (words->count < 2)
		fail(EXIT_USAGE, HINT, "the chain's plan has a line '%s' without a value", what);
	if (strcmp(what, "stage") == 0)
		read_stage(plan, words);
	else if (strcmp(what, "chain") == 0)
		read_chain(plan, words);
	else if (strcmp(what, "move") == 0)
		read_move(plan, words);
	else if (strcmp(what, "log") == 0)
		read_log(plan, words);
	else if (strcmp(what, "tcp") == 0)
		read_tcp(plan, words);
	else if (strcmp(what, "when") == 0)
		read_when(plan, words);
	else if (strcmp(what, "ecn") == 0)
		plan->ecn = number_of(what, words->at[1], 0, 1) > 0;
	else if (strcmp(what, "ring") == 0)
		plan->ring = (uint32_t)number_of(what, words->at[1], 2, 1 << 20);
	else if (strcmp(what, "buffer") == 0)
		plan->buffer_bytes = (uint32_t)number_of(what, words->at[1], 128, 65536);
	else if (strcmp(what, "shared") == 0)
		plan->shared = number_of(what, words->at[1], 0, 1) > 0;
	else if (strcmp(what, "pressure") == 0)
		plan->pressure = number_of(what, words->at[1], 0, 1) > 0;
	else if (strcmp(what, "live") == 0)
		plan->live = number_of(what, words->at[1], 0, 1) > 0;
	else if (strcmp(what, "local") == 0)
		plan->local = number_of(what, words->at[1], 0, 1) > 0;
	else if (strcmp(what, "manager") == 0)
		plan->manager_cpu = (int)number_of(what, words->at[1], 0, 4095);
	else if (strcmp(what, "group") == 0 && plan->group_count < GROUPS_MOST)
		copy_text(plan->groups[plan->group_count++], PLAN_PATH_BYTES, words->at[1]);
	else
		read_number(plan, words);
}

/* A ring has one producer: whoever comes before its stage, the same in all chains. */
static void check_shared(const struct chain_plan *plan)
{
	const char *before[STAGES_MOST] = { NULL };

	for (unsigned c = 0; c < plan->chain_count; c++)
		for (unsigned i = 0; i < plan->chains[c].length; i++) {
			unsigned stage = plan->chains[c].stages[i];
			const char *producer = i ? plan->stages[plan->chains[c].stages[i - 1]].name : "the entry";

			if (before[stage] && strcmp(before[stage], producer) != 0)
				fail(EXIT_USAGE, "give each chain its ring", "'%s' and '%s' would fill one ring of stage '%s'",
				     before[stage], producer, plan->stages[stage].name);
			before[stage] = producer;
		}
}

static void check(const struct chain_plan *plan)
{
	if (plan->shared)
		check_shared(plan);
	if (plan->ring & (plan->ring - 1))
		fail(EXIT_USAGE, "use a power of two, e.g. 2048", "a ring of %u places", plan->ring);
	if (!plan->chain_count)
		fail(EXIT_USAGE, HINT, "the plan has no chain");
	if (plan->low >= plan->high)
		fail(EXIT_USAGE, "e.g. 0.6 and 0.8", "the low mark %g is not below the high mark %g", plan->low, plan->high);
	for (unsigned c = 0; c < plan->chain_count; c++) {
		if (!plan->chains[c].length || !plan->chains[c].size_count)
			fail(EXIT_USAGE, HINT, "chain '%s' has no stage or no packet size", plan->chains[c].name);
		for (unsigned i = 0; i < plan->chains[c].size_count; i++)
			if (plan->chains[c].sizes[i] > plan->buffer_bytes)
				fail(EXIT_USAGE, "raise buffer_b, or send smaller packets",
				     "chain '%s' sends packets of %u bytes, a buffer holds %u", plan->chains[c].name,
				     plan->chains[c].sizes[i], plan->buffer_bytes);
	}
}

/* Read a file whole, as it is: the lines of a plan are kept, since options point into them. */
static char *text_of(const char *text)
{
	struct text_file file;
	size_t used = 0, room = 1;
	char *whole;

	if (text[0] != '@')
		return strdup(text);
	file = text_file_read(text + 1);
	for (unsigned i = 0; i < file.count; i++)
		room += strlen(file.lines[i]) + 1;
	whole = allocate(room, 1);
	for (unsigned i = 0; i < file.count; i++)
		used += (size_t)snprintf(whole + used, room - used, "%s\n", file.lines[i]);
	text_file_release(&file);
	return whole;
}

void chain_plan_add(struct chain_plan *plan, char *line)
{
	struct words words = { .count = 0 };
	char *rest = NULL;

	for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		if (words.count == WORDS_MOST)
			fail(EXIT_USAGE, HINT, "a line of the plan has more than %d words", WORDS_MOST);
		words.at[words.count++] = word;
	}
	if (words.count)
		read_statement(plan, &words);
}

struct chain_plan *chain_plan_read(const char *text)
{
	struct chain_plan *plan = allocate(1, sizeof(*plan));
	char *rest_of_text = NULL, *whole = text_of(text); /* stays: the stages' options point into it */

	*plan = (struct chain_plan){ .ring = 2048, .buffer_bytes = 2048, .high = 0.8, .low = 0.6, .wait_us = 100,
				     .poll_us = 50, .sample_us = 1000, .observe_ms = 10, .observe_change = 0.05, .seconds = 1 };
	for (char *line = strtok_r(whole, "\n", &rest_of_text); line; line = strtok_r(NULL, "\n", &rest_of_text))
		chain_plan_add(plan, line);
	check(plan);
	return plan;
}
