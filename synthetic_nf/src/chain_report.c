/* JSON lines about a run of chains. */
#define _GNU_SOURCE
#include "chain_report.h"

#include "clock.h"
#include "nf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_SILENCE_S 0.1
#define BUSY 0.5 /* of a core's time: with more to spare, weights decide nothing */
#define WINDOW_S 0.1 /* NFVnice: costs are medians over 100 ms; arrivals are smoothed over as much */
#define LONG(number) ((unsigned long long)(number))

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* Median cost of a packet over the last 100 ms [ticks]; 0 where none was worked on. */
static uint64_t cost_of(const struct stage_state *stage, uint64_t now)
{
	uint64_t taken = __atomic_load_n(&stage->samples_taken, __ATOMIC_ACQUIRE), costs[SAMPLES];
	uint64_t window = (uint64_t)(WINDOW_S * clock_hz());
	unsigned count = 0;

	for (uint64_t i = 0; i < taken && i < SAMPLES; i++) {
		const struct cost_sample *sample = &stage->samples[(taken - 1 - i) % SAMPLES];

		if (__atomic_load_n(&sample->at_ticks, __ATOMIC_RELAXED) + window < now)
			break;
		costs[count++] = __atomic_load_n(&sample->ticks_per_packet, __ATOMIC_RELAXED);
	}
	if (count == 0)
		return 0;
	qsort(costs, count, sizeof(costs[0]), compare);
	return costs[count / 2];
}

static uint64_t processor_ns_of(pid_t pid)
{
	clockid_t clock;
	struct timespec now;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0)
		return 0;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void read_switches(const struct stage_state *stage, struct stage_totals *totals)
{
	char path[64], line[128];
	unsigned long long number;
	FILE *stream;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)stage->pid);
	stream = fopen(path, "r");
	while (stream && fgets(line, sizeof(line), stream)) {
		if (sscanf(line, "voluntary_ctxt_switches: %llu", &number) == 1)
			totals->voluntary = number;
		if (sscanf(line, "nonvoluntary_ctxt_switches: %llu", &number) == 1)
			totals->involuntary = number;
	}
	if (stream)
		fclose(stream);
	totals->voluntary += stage->before_voluntary;
	totals->involuntary += stage->before_involuntary;
}

static void count_stage(const struct stage_state *stage, struct stage_totals *totals)
{
	memset(totals, 0, sizeof(*totals));
	for (unsigned h = 0; h < stage->hop_count; h++) {
		totals->offered += counter_read(&stage->hops[h]->offered);
		totals->lost += counter_read(&stage->hops[h]->lost);
	}
	totals->served = counter_read(&stage->served);
	totals->refused = counter_read(&stage->refused);
	totals->sleeps = counter_read(&stage->sleeps);
	totals->samples = counter_read(&stage->samples_taken);
	for (unsigned i = 0; i < TURN_BINS; i++) {
		totals->turns.packets[i] = counter_read(&stage->turns.packets[i]);
		totals->turns.ticks[i] = counter_read(&stage->turns.ticks[i]);
	}
	totals->processor_ns = processor_ns_of(stage->pid) + stage->before_ns;
}

void chain_snapshot_take(struct chain_snapshot *snapshot, const struct chain_memory *memory, const struct chain_source *source,
			 const struct chain_marks *marks)
{
	const struct chain_plan *plan = memory->plan;

	snapshot->nanoseconds = clock_nanoseconds();
	snapshot->manager_ns = clock_thread_nanoseconds();
	snapshot->presses = marks->presses;
	snapshot->wakes = marks->wakes;
	snapshot->looks = marks->looks;
	for (unsigned s = 0; s < plan->stage_count; s++) {
		count_stage(&memory->stages[s], &snapshot->stages[s]);
		read_switches(&memory->stages[s], &snapshot->stages[s]);
	}
	for (unsigned c = 0; c < plan->chain_count; c++) {
		struct chain_totals *totals = &snapshot->chains[c];

		totals->entry = *chain_source_counters(source, c);
		totals->latency = *chain_source_latency(source, c);
		totals->tcp = memory->tcp[c];
		totals->lost_behind = 0;
		for (unsigned i = 1; i < plan->chains[c].length; i++)
			totals->lost_behind += counter_read(&memory->hops[c][i].lost);
	}
}

void chain_report_ready(const struct chain_memory *memory, bool manager_first)
{
	const struct chain_plan *plan = memory->plan;

	printf("{\"event\":\"ready\",\"build\":\"%s\",\"pid\":%d,\"clock_hz\":%.0f,\"manager_first\":%s,\"mapped_bytes\":%zu,"
	       "\"stages\":[", SLOMO_NF_BUILD, (int)getpid(), clock_hz(), manager_first ? "true" : "false", memory->mapped);
	for (unsigned s = 0; s < plan->stage_count; s++)
		printf("%s{\"name\":\"%s\",\"nf\":\"%s\",\"cpu\":%d,\"pid\":%d,\"scheduler_error\":%d}", s ? "," : "",
		       plan->stages[s].name, plan->stages[s].options.nf, plan->stages[s].cpu, (int)memory->stages[s].pid,
		       memory->stages[s].scheduler_error);
	puts("]}");
	fflush(stdout);
}

/* Whether some stage's part of its core's load (arrivals x cost) is no longer what was last said. */
static bool has_moved(const struct chain_memory *memory, const struct chain_looks *looks, const double *loads)
{
	const struct chain_plan *plan = memory->plan;

	for (unsigned s = 0; s < plan->stage_count; s++) {
		double now = 0, before = 0;

		for (unsigned other = 0; other < plan->stage_count; other++)
			if (plan->stages[other].cpu == plan->stages[s].cpu) {
				now += loads[other];
				before += looks->said[other];
			}
		if (now < BUSY * clock_hz())
			continue;
		now = now > 0 ? loads[s] / now : 0;
		before = before > 0 ? looks->said[s] / before : 0;
		if (now > before * (1 + plan->observe_change) || now < before * (1 - plan->observe_change))
			return true;
	}
	return false;
}

static void print_look(const struct chain_memory *memory, const struct chain_source *source, const struct chain_looks *looks,
		       const struct chain_marks *marks, double time_s, const uint64_t *costs)
{
	const struct chain_plan *plan = memory->plan;

	printf("{\"event\":\"observe\",\"time_s\":%.6f,\"stages\":[", time_s);
	for (unsigned s = 0; s < plan->stage_count; s++)
		printf("%s[%.0f,%llu,%llu,%llu,%.1f]", s ? "," : "", looks->rates[s], LONG(costs[s]), LONG(looks->totals[s].lost),
		       LONG(looks->totals[s].served),
		       looks->served[s] > 0 ? looks->busy[s] / looks->served[s] * clock_hz() / 1e9 : 0.0);
	printf("],\"stopped\":[");
	for (unsigned c = 0; c < plan->chain_count; c++)
		printf("%s%d", c ? "," : "", marks->pressed[c]);
	printf("],\"delivered\":[");
	for (unsigned c = 0; c < plan->chain_count; c++)
		printf("%s%llu", c ? "," : "", LONG(chain_source_counters(source, c)->delivered));
	printf("],\"offered\":[");
	for (unsigned c = 0; c < plan->chain_count; c++)
		printf("%s%llu", c ? "," : "", LONG(chain_source_counters(source, c)->offered));
	puts("]}");
	fflush(stdout);
}

static void smooth(double *rate, double weight, uint64_t events, double elapsed_s)
{
	*rate += weight * ((double)events / elapsed_s - *rate);
}

void chain_report_observation(struct chain_looks *looks, const struct chain_memory *memory, const struct chain_source *source,
			      const struct chain_marks *marks, double time_s)
{
	const struct chain_plan *plan = memory->plan;
	double loads[STAGES_MOST], elapsed_s = time_s - looks->time_s;
	double weight = looks->time_s > 0 && elapsed_s < WINDOW_S ? elapsed_s / WINDOW_S : 1;
	uint64_t costs[STAGES_MOST], now = clock_ticks();

	for (unsigned s = 0; s < plan->stage_count; s++) {
		struct stage_totals *totals = &looks->totals[s], before = *totals;

		count_stage(&memory->stages[s], totals);
		smooth(&looks->rates[s], weight, totals->offered - before.offered, elapsed_s);
		smooth(&looks->served[s], weight, totals->served - before.served, elapsed_s);
		smooth(&looks->busy[s], weight, totals->processor_ns - before.processor_ns, elapsed_s);
		costs[s] = cost_of(&memory->stages[s], now);
		loads[s] = looks->rates[s] * (double)costs[s];
	}
	looks->time_s = time_s;
	if (time_s < looks->said_s + LONGEST_SILENCE_S && !has_moved(memory, looks, loads))
		return;
	memcpy(looks->said, loads, sizeof(loads));
	looks->said_s = time_s;
	print_look(memory, source, looks, marks, time_s, costs);
}

static void print_turns(const struct turn_counts *a, const struct turn_counts *b)
{
	printf(",\"turns_us\":[");
	for (unsigned i = 0; i < TURN_BINS; i++)
		printf("%s[%llu,%.1f]", i ? "," : "", LONG(b->packets[i] - a->packets[i]),
		       (double)(b->ticks[i] - a->ticks[i]) * 1e6 / clock_hz());
	printf("]}");
}

static void print_stage(const struct chain_memory *memory, unsigned s, const struct stage_totals *a, const struct stage_totals *b)
{
	printf("%s{\"name\":\"%s\",\"offered\":%llu,\"lost\":%llu,\"served\":%llu,\"refused\":%llu,\"sleeps\":%llu,\"samples\":%llu,"
	       "\"processor_s\":%.6f,\"voluntary_switches\":%llu,\"involuntary_switches\":%llu,\"cost_cycles\":%llu", s ? "," : "",
	       memory->plan->stages[s].name, LONG(b->offered - a->offered), LONG(b->lost - a->lost), LONG(b->served - a->served),
	       LONG(b->refused - a->refused), LONG(b->sleeps - a->sleeps), LONG(b->samples - a->samples),
	       (double)(b->processor_ns - a->processor_ns) / 1e9, LONG(b->voluntary - a->voluntary),
	       LONG(b->involuntary - a->involuntary), LONG(cost_of(&memory->stages[s], clock_ticks())));
	print_turns(&a->turns, &b->turns);
}

static void print_chain(const struct chain_memory *memory, unsigned c, const struct chain_totals *a, const struct chain_totals *b)
{
	static struct histogram latency;
	double us = 1e6 / clock_hz();

	histogram_subtract(&latency, &b->latency, &a->latency);
	printf("%s{\"name\":\"%s\",\"offered\":%llu,\"refused\":%llu,\"entry_lost\":%llu,\"delivered\":%llu,\"delivered_bytes\":%llu,"
	       "\"lost_behind\":%llu,\"latency_us\":{\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f}", c ? "," : "",
	       memory->plan->chains[c].name, LONG(b->entry.offered - a->entry.offered), LONG(b->entry.refused - a->entry.refused),
	       LONG(b->entry.entry_lost - a->entry.entry_lost), LONG(b->entry.delivered - a->entry.delivered),
	       LONG(b->entry.delivered_bytes - a->entry.delivered_bytes), LONG(b->lost_behind - a->lost_behind),
	       (double)histogram_quantile_ticks(&latency, 0.5) * us, (double)histogram_quantile_ticks(&latency, 0.95) * us,
	       (double)histogram_quantile_ticks(&latency, 0.99) * us);
	if (memory->plan->chains[c].tcp)
		printf(",\"tcp\":{\"received_bytes\":%llu,\"retransmitted\":%llu,\"marked\":%llu,\"ecn\":%s}",
		       LONG(b->tcp.received_bytes - a->tcp.received_bytes), LONG(b->tcp.retransmitted - a->tcp.retransmitted),
		       LONG(b->entry.marked - a->entry.marked), b->tcp.ecn ? "true" : "false");
	printf("}");
}

void chain_report_end(const struct chain_memory *memory, const struct chain_snapshot *from, const struct chain_snapshot *to)
{
	printf("{\"event\":\"end\",\"seconds\":%.6f,\"manager_s\":%.6f,\"presses\":%llu,\"wakes\":%llu,\"looks\":%llu,"
	       "\"stages\":[",
	       (double)(to->nanoseconds - from->nanoseconds) / 1e9, (double)(to->manager_ns - from->manager_ns) / 1e9,
	       LONG(to->presses - from->presses), LONG(to->wakes - from->wakes), LONG(to->looks - from->looks));
	for (unsigned s = 0; s < memory->plan->stage_count; s++)
		print_stage(memory, s, &from->stages[s], &to->stages[s]);
	printf("],\"chains\":[");
	for (unsigned c = 0; c < memory->plan->chain_count; c++)
		print_chain(memory, c, &from->chains[c], &to->chains[c]);
	puts("]}");
	fflush(stdout);
}
