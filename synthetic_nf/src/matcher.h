/* Many strings in one pass over the payload: hyperscan where it is installed, Aho-Corasick without it. */
#ifndef SLOMO_MATCHER_H
#define SLOMO_MATCHER_H

#include <stdbool.h>
#include <stdint.h>

struct matcher;

/* Compile `count` patterns: literal strings, or regular expressions (hyperscan only). */
struct matcher *matcher_create(char *const *patterns, uint32_t count, bool regex);
void matcher_release(struct matcher *matcher);

/* How many different patterns occur in the bytes. */
uint32_t matcher_scan(struct matcher *matcher, const uint8_t *bytes, uint32_t length);

/* "hyperscan" or "aho-corasick" */
const char *matcher_engine(void);

#endif
