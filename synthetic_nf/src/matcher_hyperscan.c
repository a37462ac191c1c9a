/* Many patterns in one pass by hyperscan (Wang et al., NSDI 2019): block mode, every pattern reported once per packet. */
#include "matcher.h"
#include "message.h"

#include <hs.h>
#include <stdlib.h>
#include <string.h>

struct matcher {
	hs_database_t *database;
	hs_scratch_t *scratch;
};

static _Noreturn void refuse(hs_compile_error_t *error)
{
	fail(EXIT_USAGE, "one pattern per line; --regex makes it a regular expression",
	     "hyperscan refuses pattern %d: %s", error->expression + 1, error->message);
}

/* Compile literals or expressions; SINGLEMATCH reports each pattern at most once per scan. */
static void compile(struct matcher *matcher, char *const *patterns, uint32_t count, bool regex)
{
	unsigned *flags = allocate(count, sizeof(*flags)), *numbers = allocate(count, sizeof(*numbers));
	size_t *lengths = allocate(count, sizeof(*lengths));
	const char *const *texts = (const char *const *)patterns;
	hs_compile_error_t *error = NULL;
	hs_error_t result;

	for (uint32_t i = 0; i < count; i++) {
		flags[i] = HS_FLAG_SINGLEMATCH;
		numbers[i] = i;
		lengths[i] = strlen(patterns[i]);
	}
	if (regex)
		result = hs_compile_multi(texts, flags, numbers, count, HS_MODE_BLOCK, NULL, &matcher->database, &error);
	else
		result = hs_compile_lit_multi(texts, flags, numbers, lengths, count, HS_MODE_BLOCK, NULL, &matcher->database,
					      &error);
	if (result != HS_SUCCESS)
		refuse(error);
	free(flags);
	free(numbers);
	free(lengths);
}

struct matcher *matcher_create(char *const *patterns, uint32_t count, bool regex)
{
	struct matcher *matcher = allocate(1, sizeof(*matcher));

	compile(matcher, patterns, count, regex);
	if (hs_alloc_scratch(matcher->database, &matcher->scratch) != HS_SUCCESS)
		fail(EXIT_TESTBED, "use fewer patterns", "no memory for hyperscan's scratch space");
	return matcher;
}

void matcher_release(struct matcher *matcher)
{
	hs_free_scratch(matcher->scratch);
	hs_free_database(matcher->database);
	free(matcher);
}

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context)
{
	(void)id;
	(void)from;
	(void)to;
	(void)flags;
	++*(uint32_t *)context;
	return 0;
}

uint32_t matcher_scan(struct matcher *matcher, const uint8_t *bytes, uint32_t length)
{
	uint32_t found = 0;

	hs_scan(matcher->database, (const char *)bytes, length, 0, matcher->scratch, on_match, &found);
	return found;
}

const char *matcher_engine(void)
{
	return "hyperscan";
}
