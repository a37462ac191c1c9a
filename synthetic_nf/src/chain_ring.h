/*
 * A queue between two processes: one producer, one consumer, in shared memory.
 *
 * The layout is that of DPDK's rte_ring (rte_ring_core.h), and in the DPDK build it is one. rte_ring goes back to
 * FreeBSD's buf_ring; with one producer and one consumer it is Lamport's queue (1983) whose ends lie in lines of their own.
 */
#ifndef SLOMO_CHAIN_RING_H
#define SLOMO_CHAIN_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_LINE 64
#define RING_NAME_BYTES 32

struct ring_end {
	uint32_t head; /* of what is being written or read */
	uint32_t tail; /* of what the other side may see */
	uint32_t single;
};

struct chain_ring {
	char name[RING_NAME_BYTES] __attribute__((aligned(RING_LINE)));
	int flags;
	const void *memory_zone;
	uint32_t size; /* a power of two */
	uint32_t mask;
	uint32_t capacity; /* size - 1 */
	char between0 __attribute__((aligned(RING_LINE)));
	struct ring_end producer __attribute__((aligned(RING_LINE)));
	char between1 __attribute__((aligned(RING_LINE)));
	struct ring_end consumer __attribute__((aligned(RING_LINE)));
	char between2 __attribute__((aligned(RING_LINE)));
};

/* Bytes of a ring of `size` places, `size` being a power of two. */
size_t chain_ring_bytes(uint32_t size);

/* Lay an empty ring out at `memory`, which is aligned to a cache line. */
struct chain_ring *chain_ring_place(void *memory, const char *name, uint32_t size);

/* Add up to `count` entries, take up to `most`: how many it was. */
uint32_t chain_ring_put(struct chain_ring *ring, void *const *entries, uint32_t count);
uint32_t chain_ring_take(struct chain_ring *ring, void **entries, uint32_t most);

/* How many wait, and how many fit; a moment later it may be more for whoever asks from its own end. */
static inline uint32_t chain_ring_count(const struct chain_ring *ring)
{
	uint32_t count = (__atomic_load_n(&ring->producer.tail, __ATOMIC_ACQUIRE) -
			  __atomic_load_n(&ring->consumer.tail, __ATOMIC_ACQUIRE)) & ring->mask;

	return count > ring->capacity ? ring->capacity : count;
}

static inline uint32_t chain_ring_room(const struct chain_ring *ring)
{
	return ring->capacity - chain_ring_count(ring);
}

/* The entry that waits longest, which somebody may be taking right now; NULL where none waits. */
static inline void *chain_ring_first(const struct chain_ring *ring)
{
	void *const *places = (void *const *)(const void *)(ring + 1);
	uint32_t first = __atomic_load_n(&ring->consumer.tail, __ATOMIC_ACQUIRE);

	if (first == __atomic_load_n(&ring->producer.tail, __ATOMIC_ACQUIRE))
		return NULL;
	return __atomic_load_n(&places[first & ring->mask], __ATOMIC_RELAXED);
}

#endif
