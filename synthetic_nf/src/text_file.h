/* Small text files of one entry per line: routes, rules, patterns. */
#ifndef SLOMO_TEXT_FILE_H
#define SLOMO_TEXT_FILE_H

#include <stdint.h>

struct text_file {
	char *text;
	char **lines; /* without line ends; empty lines and those that begin with '#' are left out */
	unsigned *numbers; /* line number of each, for messages */
	unsigned count;
};

/* Read a file of at most 64 MiB; ends the process (code 2) when it cannot. */
struct text_file text_file_read(const char *path);
void text_file_release(struct text_file *file);

/* "192.0.2.0/24" to an address (host order) and a length; 0 on success. A missing length means 32. */
int parse_prefix(const char *text, uint32_t *address, uint8_t *length);

#endif
