/* JSON lines on stdout. */
#include "statistics.h"

#include "clock.h"
#include "platform.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void snapshot_take(struct snapshot *snapshot, const struct worker *worker)
{
	const uint64_t *from = (const uint64_t *)&worker->counters;
	uint64_t *to = (uint64_t *)&snapshot->counters;

	snapshot->nanoseconds = clock_nanoseconds();
	for (unsigned i = 0; i < sizeof(worker->counters) / sizeof(*from); i++)
		to[i] = counter_read(&from[i]);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		snapshot->latency.counts[i] = counter_read(&worker->latency.counts[i]);
	for (unsigned i = 0; i < NF_COUNTERS_MOST; i++)
		snapshot->own[i] = (struct nf_counter){ worker->nf.counters[i].name, counter_read(&worker->nf.counters[i].value) };
	snapshot->accesses = counter_read(&worker->nf.accesses);
	snapshot->processor_ns = worker_processor_ns(worker);
	snapshot->missed = packet_io_missed(worker->io);
}

/* A JSON string; names of files and ports may hold anything. */
static void print_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text < 0x20)
			printf("\\u%04x", *text);
		else
			putchar(*text);
	}
	putchar('"');
}

static void print_knobs(const struct options *options)
{
	fputs(",\"knobs\":{", stdout);
	for (unsigned i = 0; i < KNOB_COUNT; i++) {
		printf("%s\"%s\":", i ? "," : "", KNOB_TABLE[i].name);
		if (KNOB_TABLE[i].kind == KNOB_KIND_CHOICE)
			print_text(KNOB_TABLE[i].choices[knob_integer(options, i)]);
		else
			printf("%.15g", options->knobs[i]);
	}
	putchar('}');
}

void statistics_ready(const struct worker *workers, unsigned count)
{
	const struct nf_instance *nf = &workers[0].nf;

	printf("{\"event\":\"ready\",\"schema_version\":1,\"version\":\"%s\",\"build\":\"%s\",\"pid\":%d,\"nf\":\"%s\"",
	       SLOMO_NF_VERSION, SLOMO_NF_BUILD, (int)getpid(), nf->nf->name);
	print_knobs(nf->options);
	printf(",\"tsc_hz\":%.0f,\"hugepages\":%s,\"file_prefix\":", clock_hz(), platform_hugepages() ? "true" : "false");
	print_text(platform_file_prefix());
	printf(",\"data_bytes\":%llu,\"data_pages\":\"%s\",\"instances\":[", (unsigned long long)nf->data_bytes, nf->data_pages);
	for (unsigned i = 0; i < count; i++) {
		printf("%s{\"instance\":%u,\"cpu\":", i ? "," : "", i);
		if (workers[i].cpu == UNPINNED)
			fputs("null", stdout);
		else
			printf("%d", workers[i].cpu);
		fputs(",\"source\":", stdout);
		print_text(packet_io_source(workers[i].io));
		putchar('}');
	}
	puts("]}");
	fflush(stdout);
}

static double nanoseconds_of(uint64_t ticks)
{
	return (double)ticks * 1e9 / clock_hz();
}

/* Quantiles, and the filled buckets as pairs [lower edge in ns, packets]. */
static void print_latency(const struct histogram *latency)
{
	static const struct { const char *name; double quantile; } QUANTILES[] = { { "p50", 0.5 }, { "p95", 0.95 },
										      { "p99", 0.99 }, { "max", 1 } };
	const char *comma = "";

	fputs(",\"latency_ns\":{", stdout);
	for (unsigned i = 0; i < sizeof(QUANTILES) / sizeof(QUANTILES[0]); i++)
		printf("\"%s\":%.0f,", QUANTILES[i].name,
		       nanoseconds_of(histogram_quantile_ticks(latency, QUANTILES[i].quantile)));
	fputs("\"histogram\":[", stdout);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (latency->counts[i] == 0)
			continue;
		printf("%s[%.1f,%llu]", comma, nanoseconds_of(histogram_lower_ticks(i)), (unsigned long long)latency->counts[i]);
		comma = ",";
	}
	fputs("]}", stdout);
}

static void print_own(const struct nf_counter *counters)
{
	fputs(",\"nf_counters\":{", stdout);
	for (unsigned i = 0; i < NF_COUNTERS_MOST && counters[i].name; i++)
		printf("%s\"%s\":%llu", i ? "," : "", counters[i].name, (unsigned long long)counters[i].value);
	putchar('}');
}

static void print_rates(const struct snapshot *before, const struct snapshot *now, double seconds)
{
	double packets = (double)(now->counters.packets - before->counters.packets);
	double busy = (double)(now->counters.busy_ticks - before->counters.busy_ticks);
	double accesses = (double)(now->accesses - before->accesses);

	printf(",\"cpu_share\":%.4f", (double)(now->processor_ns - before->processor_ns) / 1e9 / seconds);
	printf(",\"rate_mpps\":%.6f,\"sent_mpps\":%.6f,\"busy\":%.4f", packets / seconds / 1e6,
	       (double)(now->counters.sent - before->counters.sent) / seconds / 1e6, busy / clock_hz() / seconds);
	if (packets > 0)
		printf(",\"cycles_per_packet\":%.2f", busy / packets);
	else
		fputs(",\"cycles_per_packet\":null", stdout); /* unknown, not zero */
	printf(",\"accesses\":%.0f,\"accesses_per_s\":%.1f", accesses, accesses / seconds);
}

void statistics_interval(const char *event, const struct worker *worker, const struct snapshot *begin,
			 const struct snapshot *before, const struct snapshot *now)
{
	double seconds = (double)(now->nanoseconds - before->nanoseconds) / 1e9;
	const struct worker_counters *a = &before->counters, *b = &now->counters;
	struct histogram latency;

	seconds = seconds > 0 ? seconds : 1e-9;
	histogram_subtract(&latency, &now->latency, &before->latency);
	printf("{\"event\":\"%s\",\"instance\":%u,\"time_s\":%.6f,\"interval_s\":%.6f", event, worker->nf.number,
	       (double)(now->nanoseconds - begin->nanoseconds) / 1e9, seconds);
	printf(",\"packets\":%llu,\"bytes\":%llu,\"sent\":%llu,\"sent_bytes\":%llu", (unsigned long long)(b->packets - a->packets),
	       (unsigned long long)(b->bytes - a->bytes), (unsigned long long)(b->sent - a->sent),
	       (unsigned long long)(b->sent_bytes - a->sent_bytes));
	print_rates(before, now, seconds);
	printf(",\"drops\":{\"nf\":%llu,\"send\":%llu,\"queue\":%llu,\"port\":%llu}", (unsigned long long)(b->denied - a->denied),
	       (unsigned long long)(b->send_drops - a->send_drops), (unsigned long long)(b->queue_drops - a->queue_drops),
	       (unsigned long long)(now->missed - before->missed));
	print_latency(&latency);
	print_own(now->own);
	puts("}");
	fflush(stdout);
}
