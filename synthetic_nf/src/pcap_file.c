/* Classic pcap captures. */
#include "pcap_file.h"

#include "message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MOST (1l << 30)
#define FRAMES_MOST 4000000u
#define FRAME_MOST 16384u
#define MAGIC_MICRO 0xa1b2c3d4u
#define MAGIC_NANO 0xa1b23c4du
#define MAGIC_NEXT_GENERATION 0x0a0d0d0au
#define LINK_ETHERNET 1
#define FILE_HEADER 24
#define FRAME_HEADER 16

static uint8_t *read_whole(const char *path, size_t *bytes)
{
	FILE *stream = fopen(path, "rb");
	long size = -1;
	uint8_t *data;

	if (stream && fseek(stream, 0, SEEK_END) == 0)
		size = ftell(stream);
	if (size < 0)
		fail(EXIT_USAGE, "check the path", "cannot read the capture '%s': %s", path, strerror(errno));
	if (size > BYTES_MOST)
		fail(EXIT_USAGE, "cut it with `editcap`", "the capture '%s' has %ld bytes, at most 1 GiB is read", path, size);
	data = allocate((unsigned long)size, 1);
	rewind(stream);
	*bytes = fread(data, 1, (size_t)size, stream);
	fclose(stream);
	return data;
}

static uint32_t number_at(const uint8_t *place, int swapped)
{
	uint32_t number;

	memcpy(&number, place, sizeof(number));
	return swapped ? __builtin_bswap32(number) : number;
}

/* Check the file header; returns whether its byte order is not ours. */
static int check_header(const char *path, const uint8_t *data, size_t bytes)
{
	uint32_t magic = bytes >= FILE_HEADER ? number_at(data, 0) : 0, turned = __builtin_bswap32(magic);
	int swapped = turned == MAGIC_MICRO || turned == MAGIC_NANO;

	if (magic == MAGIC_NEXT_GENERATION)
		fail(EXIT_USAGE, "convert it: editcap -F pcap IN OUT", "'%s' is a pcapng capture; a classic pcap is needed", path);
	if (!swapped && magic != MAGIC_MICRO && magic != MAGIC_NANO)
		fail(EXIT_USAGE, "record one with `tcpdump -w`", "'%s' is no pcap capture", path);
	if ((number_at(data + 20, swapped) & 0xffff) != LINK_ETHERNET)
		fail(EXIT_USAGE, "record it on an Ethernet interface", "'%s' has link type %u, Ethernet (1) is needed", path,
		     number_at(data + 20, swapped) & 0xffff);
	return swapped;
}

struct traffic pcap_read(const char *path)
{
	size_t bytes, place = FILE_HEADER;
	struct traffic traffic = { .bytes = read_whole(path, &bytes) };
	int swapped = check_header(path, traffic.bytes, bytes);
	uint32_t room = 0;

	while (place + FRAME_HEADER <= bytes && traffic.count < FRAMES_MOST) {
		uint32_t length = number_at(traffic.bytes + place + 8, swapped);

		place += FRAME_HEADER;
		if (length > bytes - place) /* the last frame was cut off */
			break;
		if (length > FRAME_MOST)
			fail(EXIT_USAGE, "record without segmentation offload", "frame %u of '%s' has %u bytes, at most %u fit",
			     traffic.count + 1, path, length, FRAME_MOST);
		if (traffic.count == room) {
			room = room ? 2 * room : 1024;
			traffic.frames = realloc(traffic.frames, room * sizeof(*traffic.frames));
			if (!traffic.frames)
				fail(EXIT_TESTBED, "use a smaller capture", "no memory for %u frames", room);
		}
		traffic.frames[traffic.count++] = (struct frame){ place, length };
		place += length;
	}
	if (traffic.count == 0)
		fail(EXIT_USAGE, "record some traffic first", "the capture '%s' holds no packets", path);
	return traffic;
}

FILE *pcap_create(const char *path)
{
	const uint32_t header[6] = { MAGIC_MICRO, 4u << 16 | 2u, 0, 0, 65535, LINK_ETHERNET };
	FILE *stream = fopen(path, "wb");

	if (!stream || fwrite(header, sizeof(header), 1, stream) != 1)
		fail(EXIT_USAGE, "check the path", "cannot write the capture '%s': %s", path, strerror(errno));
	return stream;
}

void pcap_write(FILE *stream, const uint8_t *frame, uint32_t length)
{
	const uint32_t header[4] = { 0, 0, length, length };

	if (fwrite(header, sizeof(header), 1, stream) != 1 || fwrite(frame, 1, length, stream) != length)
		fail(EXIT_TESTBED, "is the disk full?", "cannot write to the capture: %s", strerror(errno));
}
