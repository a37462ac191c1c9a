/* Generated UDP flows. */
#include "traffic.h"

#include "headers.h"
#include "message.h"
#include "random.h"

#include <stdlib.h>

#define UDP_BYTES 8
#define INSIDE_NETWORK 0x0a000000u /* sources are in 10.0.0.0/8 */

/* The UDP checksum covers addresses, protocol and length as well (RFC 768). */
static uint16_t udp_checksum(const uint8_t *ip, uint16_t udp_bytes)
{
	uint8_t area[12 + 1514] = { 0 };
	uint16_t sum;

	memcpy(area, ip + 12, 8);
	area[9] = PROTOCOL_UDP;
	store16(area + 10, udp_bytes);
	memcpy(area + 12, ip + IPV4_BYTES, udp_bytes);
	sum = checksum_of(area, 12u + udp_bytes);
	return sum ? sum : 0xffff;
}

static void write_frame(uint8_t *frame, uint16_t size, uint64_t *seed)
{
	static const uint8_t FIXED[26] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0 };
	uint8_t *ip = frame + ETHERNET_BYTES, *udp = ip + IPV4_BYTES;
	uint16_t ip_bytes = (uint16_t)(size - ETHERNET_BYTES), udp_bytes = (uint16_t)(ip_bytes - IPV4_BYTES);
	uint64_t addresses = random_next(seed), ports = random_next(seed);

	memcpy(frame, FIXED, sizeof(FIXED));
	store16(ip + 2, ip_bytes);
	store32(ip + 12, INSIDE_NETWORK | ((uint32_t)addresses & 0xffffff));
	store32(ip + 16, (uint32_t)(addresses >> 32) % 0xdfffffffu); /* below multicast */
	store16(ip + 10, checksum_of(ip, IPV4_BYTES));
	store16(udp, (uint16_t)ports);
	store16(udp + 2, (uint16_t)(ports >> 16));
	store16(udp + 4, udp_bytes);
	for (uint32_t i = UDP_BYTES; i < udp_bytes; i++)
		udp[i] = (uint8_t)(random_mix(*seed + i) >> 56);
	store16(udp + 6, udp_checksum(ip, udp_bytes));
}

struct traffic traffic_generate(uint32_t flows, uint32_t packet_size, uint64_t seed)
{
	struct traffic traffic = { .bytes = allocate(flows, packet_size), .count = flows };

	traffic.frames = allocate(flows, sizeof(*traffic.frames));
	for (uint32_t i = 0; i < flows; i++) {
		traffic.frames[i] = (struct frame){ (size_t)i * packet_size, packet_size };
		write_frame(traffic.bytes + traffic.frames[i].offset, (uint16_t)packet_size, &seed);
	}
	return traffic;
}

void traffic_release(struct traffic *traffic)
{
	free(traffic->bytes);
	free(traffic->frames);
	traffic->bytes = NULL;
	traffic->frames = NULL;
}
