/* The loads and stores of the competitor. */
#include "access_patterns.h"

#include "random.h"

_Static_assert(sizeof(struct line) == LINE_BYTES, "a line of data is a line of cache");

/* Sattolo's shuffle of the links: one cycle through all lines, so that a chase has the whole structure as footprint. */
static void link_lines(struct access_data *data, uint64_t seed)
{
	uint64_t state = random_mix(seed);

	for (uint64_t i = 0; i < data->count; i++)
		data->lines[i].next = i;
	for (uint64_t i = data->count - 1; i > 0; i--) {
		uint64_t other = random_below(random_next(&state), i);
		uint64_t link = data->lines[i].next;

		data->lines[i].next = data->lines[other].next;
		data->lines[other].next = link;
	}
}

void access_data_create(struct access_data *data, uint64_t bytes, uint64_t seed, const char *pages, int chained)
{
	data->count = bytes / LINE_BYTES / STREAMS * STREAMS;
	data->region = region_take(data->count * LINE_BYTES, pages);
	data->lines = data->region.base;
	data->cursor = 0;
	data->random = seed;
	data->checksum = 0;
	for (uint64_t i = 0; i < data->count; i++)
		data->lines[i].value = random_mix(seed + i);
	if (chained)
		link_lines(data, seed);
}

void access_data_release(struct access_data *data)
{
	region_release(&data->region);
}

void access_read_random(struct access_data *data, uint64_t reads)
{
	const struct line *lines = data->lines;
	uint64_t random = data->random, sum = data->checksum, count = data->count;

	for (uint64_t i = 0; i < reads; i++) {
		random = random_step(random);
		sum += lines[random_below(random, count)].value;
	}
	data->random = random;
	data->checksum = sum;
}

void access_read_chain(struct access_data *data, uint64_t reads)
{
	const struct line *lines = data->lines;
	uint64_t cursor = data->cursor, sum = data->checksum;

	for (uint64_t i = 0; i < reads; i++) {
		sum += lines[cursor].value;
		cursor = lines[cursor].next;
	}
	data->cursor = cursor;
	data->checksum = sum;
}

/*
 * The stream: STREAMS places advance side by side, each through its own part of the structure. A hardware prefetcher
 * follows a stream within one page only, so several streams keep more lines in flight than one (here 13 GB/s, not 9).
 */
static struct line *stream_line(const struct access_data *data, uint64_t cursor)
{
	return &data->lines[cursor % STREAMS * (data->count / STREAMS) + cursor / STREAMS];
}

static uint64_t advance(const struct access_data *data, uint64_t cursor, uint64_t lines)
{
	return cursor + lines == data->count ? 0 : cursor + lines;
}

/* Whole rows (one line of each stream) that can be taken from a cursor at the begin of a row. */
static uint64_t whole_rows(const struct access_data *data, uint64_t wanted)
{
	uint64_t left = data->count - data->cursor;

	return (wanted < left ? wanted : left) / STREAMS;
}

void access_read_sequential(struct access_data *data, uint64_t reads)
{
	const uint64_t stride = data->count / STREAMS;
	uint64_t sum = data->checksum;

	while (reads > 0) {
		if (data->cursor % STREAMS == 0 && reads >= STREAMS) {
			uint64_t rows = whole_rows(data, reads);
			const struct line *row = data->lines + data->cursor / STREAMS;

			for (uint64_t i = 0; i < rows; i++)
				for (unsigned stream = 0; stream < STREAMS; stream++)
					sum += row[i + stream * stride].value;
			data->cursor = advance(data, data->cursor, rows * STREAMS);
			reads -= rows * STREAMS;
		} else {
			sum += stream_line(data, data->cursor)->value;
			data->cursor = advance(data, data->cursor, 1);
			reads--;
		}
	}
	data->checksum = sum;
}

void access_write_random(struct access_data *data, uint64_t writes)
{
	struct line *lines = data->lines;
	uint64_t random = data->random;

	for (uint64_t i = 0; i < writes; i++) {
		random = random_step(random);
		lines[random_below(random, data->count)].written++;
	}
	data->random = random;
}

void access_write_chain(struct access_data *data, uint64_t writes)
{
	struct line *lines = data->lines;
	uint64_t cursor = data->cursor;

	for (uint64_t i = 0; i < writes; i++) {
		lines[cursor].written++;
		cursor = lines[cursor].next;
	}
	data->cursor = cursor;
}

void access_write_sequential(struct access_data *data, uint64_t writes)
{
	for (uint64_t i = 0; i < writes; i++) {
		stream_line(data, data->cursor)->written++;
		data->cursor = advance(data, data->cursor, 1);
	}
}

struct access_audit access_data_audit(const struct access_data *data)
{
	struct access_audit audit = { 0, 0 };

	for (uint64_t i = 0; i < data->count; i++) {
		audit.lines_written += data->lines[i].written > 0;
		audit.writes_found += data->lines[i].written;
	}
	return audit;
}
