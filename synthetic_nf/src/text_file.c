/* Small text files of one entry per line. */
#include "text_file.h"

#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MOST (64l << 20)

static char *read_whole(const char *path)
{
	FILE *stream = fopen(path, "rb");
	long bytes = -1;
	char *text;

	if (stream && fseek(stream, 0, SEEK_END) == 0)
		bytes = ftell(stream);
	if (bytes < 0)
		fail(EXIT_USAGE, "check the path", "cannot read '%s': %s", path, strerror(errno));
	if (bytes > BYTES_MOST)
		fail(EXIT_USAGE, "at most 64 MiB are read", "'%s' has %ld bytes", path, bytes);
	text = allocate((unsigned long)bytes + 1, 1);
	rewind(stream);
	if (fread(text, 1, (size_t)bytes, stream) != (size_t)bytes)
		fail(EXIT_USAGE, "check the file", "cannot read '%s' to its end", path);
	fclose(stream);
	return text;
}

struct text_file text_file_read(const char *path)
{
	struct text_file file = { .text = read_whole(path) };
	unsigned room = 1, number = 0;

	for (const char *letter = file.text; *letter; letter++)
		room += *letter == '\n';
	file.lines = allocate(room, sizeof(*file.lines));
	file.numbers = allocate(room, sizeof(*file.numbers));
	for (char *line = file.text; line; number++) {
		char *end = strchr(line, '\n');

		if (end)
			*end = 0;
		line[strcspn(line, "\r")] = 0;
		if (*line && *line != '#') {
			file.numbers[file.count] = number + 1;
			file.lines[file.count++] = line;
		}
		line = end ? end + 1 : NULL;
	}
	return file;
}

void text_file_release(struct text_file *file)
{
	free(file->text);
	free(file->lines);
	free(file->numbers);
}

int parse_prefix(const char *text, uint32_t *address, uint8_t *length)
{
	unsigned bytes[4], bits = 32;
	char rest;
	int found = sscanf(text, "%u.%u.%u.%u%c%u%c", &bytes[0], &bytes[1], &bytes[2], &bytes[3], &rest, &bits, &rest);

	if (found != 4 && !(found == 6 && strchr(text, '/') && bits <= 32))
		return -1;
	*address = 0;
	for (unsigned i = 0; i < 4; i++) {
		if (bytes[i] > 255)
			return -1;
		*address = *address << 8 | bytes[i];
	}
	*length = (uint8_t)bits;
	return 0;
}
