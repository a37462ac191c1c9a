/* Large anonymous memory with a chosen page size. */
#define _GNU_SOURCE
#include "memory.h"

#include "message.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)
#define PROTECTION (PROT_READ | PROT_WRITE)
#define MAPPING (MAP_PRIVATE | MAP_ANONYMOUS)

/* Reserved hugepages of the default size; they go back to the kernel's pool when the process ends, however it ends. */
static bool take_huge(struct region *region)
{
	region->base = mmap(NULL, region->mapped, PROTECTION, MAPPING | MAP_HUGETLB, -1, 0);
	region->pages = "huge_2mib";
	return region->base != MAP_FAILED;
}

/* Aligned to 2 MiB, so that the kernel can use transparent hugepages from the first byte. */
static bool take_plain(struct region *region, bool transparent)
{
	char *base = mmap(NULL, region->mapped + HUGE_PAGE, PROTECTION, MAPPING, -1, 0);
	size_t skip;

	if (base == MAP_FAILED)
		return false;
	skip = (HUGE_PAGE - (size_t)base % HUGE_PAGE) % HUGE_PAGE;
	if (skip)
		munmap(base, skip);
	munmap(base + skip + region->mapped, HUGE_PAGE - skip);
	region->base = base + skip;
	region->pages = "small_4kib";
	if (!transparent)
		madvise(region->base, region->mapped, MADV_NOHUGEPAGE);
	else if (madvise(region->base, region->mapped, MADV_HUGEPAGE) == 0)
		region->pages = "transparent";
	return true;
}

struct region region_take(size_t bytes, const char *pages)
{
	struct region region = { .bytes = bytes };
	bool any = strcmp(pages, "auto") == 0;

	region.mapped = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	if ((any || strcmp(pages, "huge") == 0) && take_huge(&region))
		return region;
	if (strcmp(pages, "huge") == 0)
		fail(EXIT_TESTBED, "reserve them in /sys/kernel/mm/hugepages, or use --pages auto",
		     "%zu MiB of reserved hugepages are not available: %s", region.mapped >> 20, strerror(errno));
	if (!take_plain(&region, strcmp(pages, "small") != 0))
		fail(EXIT_TESTBED, "ask for less, e.g. --data-size-mib 64", "%zu MiB of memory are not available: %s",
		     region.mapped >> 20, strerror(errno));
	return region;
}

void region_release(struct region *region)
{
	if (region->base)
		munmap(region->base, region->mapped);
	region->base = NULL;
}
