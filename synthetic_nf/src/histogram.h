/* Latency counts in logarithmic buckets, eight per power of two (a bucket is at most 12.5 % wide). */
#ifndef SLOMO_HISTOGRAM_H
#define SLOMO_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 3
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS];
};

/* The bucket of a number of ticks: exact below 8, then by its exponent and its next three bits. */
static inline unsigned histogram_bucket(uint64_t ticks)
{
	unsigned exponent;

	if (ticks < (1u << HISTOGRAM_SUB_BITS))
		return (unsigned)ticks;
	exponent = 63u - (unsigned)__builtin_clzll(ticks);
	return ((exponent - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS) +
	       (unsigned)((ticks >> (exponent - HISTOGRAM_SUB_BITS)) & ((1u << HISTOGRAM_SUB_BITS) - 1));
}

/* Add `count` packets of this latency; one writer, readers may look at any time. */
static inline void histogram_add(struct histogram *histogram, uint64_t ticks, uint64_t count)
{
	uint64_t *cell = &histogram->counts[histogram_bucket(ticks)];

	__atomic_store_n(cell, *cell + count, __ATOMIC_RELAXED);
}

/* Least number of ticks that falls into the bucket. */
uint64_t histogram_lower_ticks(unsigned bucket);

/* Latency [ticks] below which the share `quantile` (0..1) lies: upper edge of its bucket; 0 if empty. */
uint64_t histogram_quantile_ticks(const struct histogram *histogram, double quantile);

/* after = now - before, bucket by bucket. */
void histogram_subtract(struct histogram *after, const struct histogram *now, const struct histogram *before);

#endif
