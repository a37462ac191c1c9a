/* Seeded numbers: a linear congruential step for addresses and splitmix64 for everything else. */
#ifndef SLOMO_RANDOM_H
#define SLOMO_RANDOM_H

#include <stdint.h>

/* Knuth's MMIX generator: four cycles a step, so that many loads are in flight; only the high bits are used. */
static inline uint64_t random_step(uint64_t state)
{
	return state * 6364136223846793005u + 1442695040888963407u;
}

/* Map 64 random bits to 0 .. bound-1 without a division (Lemire 2019). */
static inline uint64_t random_below(uint64_t bits, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)bits * bound) >> 64);
}

/* Mix the bits of a number; mix(1), mix(2), ... is the splitmix64 sequence (Steele et al. 2014). */
static inline uint64_t random_mix(uint64_t number)
{
	number += 0x9e3779b97f4a7c15u;
	number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
	number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
	return number ^ (number >> 31);
}

/* Next number of a splitmix64 stream. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t number = random_mix(*state);

	*state += 0x9e3779b97f4a7c15u;
	return number;
}

#endif
