/* Frames to replay: from a capture, or generated UDP flows. */
#ifndef SLOMO_TRAFFIC_H
#define SLOMO_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

struct frame {
	size_t offset; /* into bytes */
	uint32_t length;
};

struct traffic {
	uint8_t *bytes;
	struct frame *frames;
	uint32_t count;
};

/* One frame per flow of `packet_size` bytes, IPv4 and UDP with right checksums, random five-tuples. */
struct traffic traffic_generate(uint32_t flows, uint32_t packet_size, uint64_t seed);
void traffic_release(struct traffic *traffic);

#endif
