/*
 * Computes for a given number of cycles per packet and touches no data: the network functions of NFVnice (SIGCOMM'17).
 *
 * The cycles are those of a chain of dependent multiplications, whose length is calibrated at the start. A look at the
 * clock per packet would count the time in which the scheduler ran somebody else as work done.
 */
#include "clock.h"
#include "message.h"
#include "nf.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COSTS_MOST 16
#define CHANGES_MOST 16
#define TRIAL_STEPS 4096
#define TRIALS 200

enum { COUNTER_STEPS, COUNTER_STEPS_PER_TICK_1000 };

/* From so many ticks after the first packet on, every packet costs so much. */
struct change {
	uint64_t ticks;
	uint32_t steps;
};

struct compute {
	struct change changes[CHANGES_MOST];
	uint32_t change_count, next_change;
	uint64_t first_ticks;
	uint32_t steps[COSTS_MOST];
	uint32_t costs;
	uint64_t draws, value;
};

static uint64_t compute_steps(uint64_t value, uint32_t steps)
{
	while (steps--) {
		value = random_step(value);
		__asm__ volatile("" : "+r"(value));
	}
	return value;
}

/* Ticks of one step: the quickest of many short trials, since none is quicker than undisturbed. */
static double ticks_per_step(void)
{
	uint64_t quickest = UINT64_MAX, value = 1;

	for (unsigned trial = 0; trial < TRIALS; trial++) {
		uint64_t begin = clock_ticks(), ticks;

		value = compute_steps(value, TRIAL_STEPS);
		ticks = clock_ticks() - begin;
		quickest = ticks < quickest ? ticks : quickest;
	}
	return (double)quickest / TRIAL_STEPS;
}

static void read_changes(struct compute *state, const char *text, double ticks_each)
{
	const char *rest = text;
	double seconds, cycles, before = 0;
	int used = 0;

	while (rest && *rest) {
		if (sscanf(rest, "%lf:%lf%n", &seconds, &cycles, &used) != 2 || (rest[used] && rest[used] != ',') ||
		    !(seconds > before && seconds <= 1e6 && cycles >= 0 && cycles <= 1e9) || state->change_count == CHANGES_MOST)
			fail(EXIT_USAGE, "seconds:cycles in the order of time, e.g. --cycles-from 15:1650,30:550",
			     "--cycles-from does not understand '%s'", text);
		state->changes[state->change_count++] =
			(struct change){ (uint64_t)(seconds * clock_hz()), (uint32_t)(cycles / ticks_each + 0.5) };
		before = seconds;
		rest += used + (rest[used] == ',');
	}
}

/* One look at the clock per burst, and none where nothing changes. */
static void change_costs(struct compute *state)
{
	uint64_t now;

	if (state->next_change == state->change_count)
		return;
	now = clock_ticks();
	if (!state->first_ticks)
		state->first_ticks = now;
	while (state->next_change < state->change_count && now - state->first_ticks >= state->changes[state->next_change].ticks) {
		state->steps[0] = state->changes[state->next_change++].steps;
		state->costs = 1;
	}
}

static void compute_start(struct nf_instance *self)
{
	struct compute *state = allocate(1, sizeof(*state));
	double each = ticks_per_step();
	const char *text = self->options->cycles;
	char *end = NULL;

	do {
		double cycles = strtod(text, &end);

		if (end == text || (*end && *end != ',') || !(cycles >= 0 && cycles <= 1e9) || state->costs == COSTS_MOST)
			fail(EXIT_USAGE, "e.g. --cycles 550 or, drawn anew per packet, --cycles 120,270,550",
			     "--cycles does not understand '%s'", self->options->cycles);
		state->steps[state->costs++] = (uint32_t)(cycles / each + 0.5);
		text = end + 1;
	} while (*end);
	read_changes(state, self->options->cycles_from, each);
	state->draws = (uint64_t)self->options->seed + self->number;
	self->state = state;
	self->counters[COUNTER_STEPS].name = "steps";
	self->counters[COUNTER_STEPS_PER_TICK_1000] = (struct nf_counter){ "steps_per_1000_ticks", (uint64_t)(1000 / each) };
}

static void compute_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct compute *state = self->state;
	uint64_t steps = 0;

	change_costs(state);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t choice = state->costs == 1 ? 0 : (uint32_t)random_below(random_next(&state->draws), state->costs);

		state->value = compute_steps(state->value + packets[i].data[0], state->steps[choice]);
		steps += state->steps[choice];
	}
	counter_add(&self->counters[COUNTER_STEPS].value, steps);
}

static void compute_stop(struct nf_instance *self)
{
	free(self->state);
}

const struct nf nf_compute = {
	.name = "compute",
	.summary = "computes for --cycles per packet, then forwards",
	.start = compute_start,
	.process = compute_process,
	.stop = compute_stop,
};
