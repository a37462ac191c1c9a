/* The ring is DPDK's rte_ring, laid out in our own shared memory: it needs no memory zone, and so no name that could stay behind. */
#include "chain_ring.h"
#include "message.h"

#include <rte_errno.h>
#include <rte_ring.h>

_Static_assert(sizeof(struct chain_ring) == sizeof(struct rte_ring), "the rings differ in size");
_Static_assert(offsetof(struct chain_ring, size) == offsetof(struct rte_ring, size), "size lies elsewhere");
_Static_assert(offsetof(struct chain_ring, capacity) == offsetof(struct rte_ring, capacity), "capacity lies elsewhere");
_Static_assert(offsetof(struct chain_ring, producer) == offsetof(struct rte_ring, prod), "the producer's end lies elsewhere");
_Static_assert(offsetof(struct chain_ring, consumer) == offsetof(struct rte_ring, cons), "the consumer's end lies elsewhere");

size_t chain_ring_bytes(uint32_t size)
{
	return (size_t)rte_ring_get_memsize(size);
}

struct chain_ring *chain_ring_place(void *memory, const char *name, uint32_t size)
{
	int result = rte_ring_init(memory, name, size, RING_F_SP_ENQ | RING_F_SC_DEQ);

	if (result != 0)
		fail(EXIT_USAGE, "use a power of two", "rte_ring refuses a ring of %u places: %s", size, rte_strerror(-result));
	return memory;
}

uint32_t chain_ring_put(struct chain_ring *ring, void *const *entries, uint32_t count)
{
	return rte_ring_sp_enqueue_burst((struct rte_ring *)ring, entries, count, NULL);
}

uint32_t chain_ring_take(struct chain_ring *ring, void **entries, uint32_t most)
{
	return rte_ring_sc_dequeue_burst((struct rte_ring *)ring, entries, most, NULL);
}
