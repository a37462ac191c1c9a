/* Latency counts in logarithmic buckets. */
#include "histogram.h"

uint64_t histogram_lower_ticks(unsigned bucket)
{
	unsigned octave = bucket >> HISTOGRAM_SUB_BITS, sub = bucket & ((1u << HISTOGRAM_SUB_BITS) - 1);

	if (octave == 0)
		return sub;
	return ((uint64_t)((1u << HISTOGRAM_SUB_BITS) + sub)) << (octave - 1);
}

uint64_t histogram_quantile_ticks(const struct histogram *histogram, double quantile)
{
	uint64_t total = 0, seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		total += histogram->counts[i];
	if (total == 0)
		return 0;
	for (unsigned i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->counts[i];
		if ((double)seen >= quantile * (double)total && seen > 0)
			return histogram_lower_ticks(i + 1);
	}
	return UINT64_MAX;
}

void histogram_subtract(struct histogram *after, const struct histogram *now, const struct histogram *before)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		after->counts[i] = now->counts[i] - before->counts[i];
}
