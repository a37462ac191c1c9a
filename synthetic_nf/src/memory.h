/* Large anonymous memory with a chosen page size, because random accesses over 4 KiB pages measure the TLB instead. */
#ifndef SLOMO_MEMORY_H
#define SLOMO_MEMORY_H

#include <stddef.h>

struct region {
	void *base;
	size_t bytes;      /* what was asked for */
	size_t mapped;     /* rounded up to whole pages */
	const char *pages; /* "huge_2mib", "transparent" or "small_4kib": what was given */
};

/*
 * Map `bytes` of zeroed memory. `pages`: "huge" (reserved hugepages, or fail), "transparent" (MADV_HUGEPAGE),
 * "small" (4 KiB), or "auto" (the first of these that works). First touched by the caller's core, so it is local to it.
 */
struct region region_take(size_t bytes, const char *pages);
void region_release(struct region *region);

#endif
