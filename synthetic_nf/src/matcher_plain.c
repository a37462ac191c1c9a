/* Many strings in one pass without a library: Aho and Corasick (CACM 1975) as a full table of 256 followers per state. */
#include "matcher.h"

#include "message.h"

#include <stdlib.h>
#include <string.h>

#define LETTERS 256u
#define STATES_MOST 2000000u /* 2 GB of table */
#define NO_STATE 0u
#define NO_PATTERN UINT32_MAX

struct state {
	uint32_t next[LETTERS];
	uint32_t failure;
	uint32_t pattern; /* the pattern that ends here */
	uint32_t shorter; /* nearest state on the failure path where a pattern ends; 0: none */
};

struct matcher {
	struct state *states;
	uint32_t count;
	uint32_t *seen; /* by pattern: number of the last scan that found it */
	uint32_t scans;
	uint32_t patterns;
};

static void insert(struct matcher *matcher, const char *text, uint32_t pattern)
{
	uint32_t state = 0;

	for (const uint8_t *letter = (const uint8_t *)text; *letter; letter++) {
		if (matcher->states[state].next[*letter] == NO_STATE) {
			matcher->states[matcher->count].pattern = NO_PATTERN;
			matcher->states[state].next[*letter] = matcher->count++;
		}
		state = matcher->states[state].next[*letter];
	}
	if (matcher->states[state].pattern == NO_PATTERN)
		matcher->states[state].pattern = pattern;
}

/* Breadth first: the failure of a child is the follower of its parent's failure; missing followers are filled in. */
static void link_failures(struct matcher *matcher)
{
	struct state *states = matcher->states;
	uint32_t *queue = allocate(matcher->count, sizeof(*queue)), head = 0, tail = 0;

	for (unsigned letter = 0; letter < LETTERS; letter++)
		if (states[0].next[letter] != NO_STATE)
			queue[tail++] = states[0].next[letter];
	while (head < tail) {
		uint32_t here = queue[head++], failure = states[here].failure;

		states[here].shorter = states[failure].pattern != NO_PATTERN ? failure : states[failure].shorter;
		for (unsigned letter = 0; letter < LETTERS; letter++) {
			uint32_t child = states[here].next[letter];

			if (child == NO_STATE) {
				states[here].next[letter] = states[failure].next[letter];
				continue;
			}
			states[child].failure = states[failure].next[letter];
			queue[tail++] = child;
		}
	}
	free(queue);
}

struct matcher *matcher_create(char *const *patterns, uint32_t count, bool regex)
{
	struct matcher *matcher = allocate(1, sizeof(*matcher));
	size_t states = 1;

	if (regex)
		fail(EXIT_USAGE, "build with libhyperscan-dev installed", "--regex needs hyperscan, this build has none");
	for (uint32_t i = 0; i < count; i++)
		states += strlen(patterns[i]);
	if (states > STATES_MOST)
		fail(EXIT_USAGE, "use fewer or shorter patterns", "the patterns have %zu letters, at most %u fit", states, STATES_MOST);
	matcher->states = allocate(states, sizeof(*matcher->states));
	matcher->seen = allocate(count, sizeof(*matcher->seen));
	matcher->patterns = count;
	matcher->states[0].pattern = NO_PATTERN;
	matcher->count = 1;
	for (uint32_t i = 0; i < count; i++)
		insert(matcher, patterns[i], i);
	link_failures(matcher);
	return matcher;
}

void matcher_release(struct matcher *matcher)
{
	free(matcher->states);
	free(matcher->seen);
	free(matcher);
}

/* Count the patterns that end in this state and were not seen in this scan. */
static uint32_t collect(struct matcher *matcher, uint32_t state)
{
	uint32_t found = 0;

	if (matcher->states[state].pattern == NO_PATTERN)
		state = matcher->states[state].shorter;
	for (; state != 0; state = matcher->states[state].shorter) {
		uint32_t *seen = &matcher->seen[matcher->states[state].pattern];

		found += *seen != matcher->scans;
		*seen = matcher->scans;
	}
	return found;
}

uint32_t matcher_scan(struct matcher *matcher, const uint8_t *bytes, uint32_t length)
{
	uint32_t state = 0, found = 0;

	if (++matcher->scans == 0) { /* the number wrapped around: forget the old ones */
		memset(matcher->seen, 0, matcher->patterns * sizeof(*matcher->seen));
		matcher->scans = 1;
	}
	for (uint32_t i = 0; i < length; i++) {
		state = matcher->states[state].next[bytes[i]];
		if (matcher->states[state].pattern != NO_PATTERN || matcher->states[state].shorter)
			found += collect(matcher, state);
	}
	return found;
}

const char *matcher_engine(void)
{
	return "aho-corasick";
}
