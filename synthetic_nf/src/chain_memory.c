/* The shared mapping: states, rings, buffers, one behind the other. */
#include "chain_memory.h"

#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static size_t in_lines(size_t bytes)
{
	return (bytes + RING_LINE - 1) / RING_LINE * RING_LINE;
}

static uint32_t hops_of(const struct chain_plan *plan)
{
	uint32_t count = 0;

	for (unsigned c = 0; c < plan->chain_count; c++)
		count += plan->chains[c].length;
	return count;
}

/* Rings that all buffers fit into: what leaves is never lost because nobody fetched it. */
static uint32_t whole_ring(uint32_t buffers)
{
	uint32_t size = 2;

	while (size <= buffers)
		size *= 2;
	return size;
}

struct layout {
	struct chain_memory *memory;
	uint8_t *next;
};

static struct chain_ring *place_ring(struct layout *layout, const char *kind, unsigned first, unsigned second, uint32_t size)
{
	char name[RING_NAME_BYTES];
	uint8_t *place = layout->next;

	snprintf(name, sizeof(name), "%s%u.%u", kind, first, second);
	layout->next += in_lines(chain_ring_bytes(size));
	return chain_ring_place(place, name, size);
}

static void join_hops(struct layout *layout, const struct chain_plan *plan)
{
	struct chain_memory *memory = layout->memory;

	for (unsigned c = 0; c < plan->chain_count; c++) {
		const struct plan_chain *chain = &plan->chains[c];

		for (unsigned i = 0; i < chain->length; i++) {
			struct hop *hop = &memory->hops[c][i];
			struct stage_state *stage = &memory->stages[chain->stages[i]];

			*hop = (struct hop){ .ring = plan->shared && stage->hop_count ? stage->hops[0]->ring
								      : place_ring(layout, "hop", c, i, plan->ring),
					     .stage = chain->stages[i], .chain = c, .position = i,
					     .last = i + 1 == chain->length };
			stage->hops[stage->hop_count++] = stage->of_chain[c] = hop;
			if (i)
				memory->hops[c][i - 1].next = hop->ring;
		}
		memory->exits[c] = place_ring(layout, "exit", c, 0, whole_ring(memory->buffer_count));
		memory->hops[c][chain->length - 1].next = memory->exits[c];
	}
	for (unsigned s = 0; s < plan->stage_count; s++)
		memory->stages[s].returned = place_ring(layout, "returned", s, 0, whole_ring(memory->buffer_count));
}

struct chain_memory *chain_memory_create(const struct chain_plan *plan)
{
	uint32_t hops = hops_of(plan), buffers = (hops + plan->chain_count) * plan->ring + hops * BURST_LINES;
	size_t stride = in_lines(sizeof(struct chain_buffer) + HEADROOM + plan->buffer_bytes + BUFFER_TAIL);
	size_t states = in_lines(sizeof(struct chain_memory)), rings, bytes;
	struct layout layout;

	/* neighbours a power of two apart would all fall into the same few sets of the caches */
	stride += stride / RING_LINE % 2 ? 0 : RING_LINE;
	rings = hops * in_lines(chain_ring_bytes(plan->ring)) +
		(plan->chain_count + plan->stage_count) * in_lines(chain_ring_bytes(whole_ring(buffers)));
	bytes = states + rings + (size_t)buffers * stride;
	layout.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (layout.memory == MAP_FAILED)
		fail(EXIT_TESTBED, "use smaller rings or buffers", "%zu MiB for rings and buffers are not available: %s",
		     bytes >> 20, strerror(errno));
	layout.next = (uint8_t *)layout.memory + states;
	layout.memory->plan = plan;
	layout.memory->mapped = bytes;
	layout.memory->buffer_count = buffers;
	layout.memory->buffer_stride = stride;
	join_hops(&layout, plan);
	layout.memory->buffers = layout.next;
	return layout.memory;
}
