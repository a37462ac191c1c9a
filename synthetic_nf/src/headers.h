/* Ethernet, IPv4, UDP and TCP headers: bounds-checked places in a frame, byte order and incremental checksums. */
#ifndef SLOMO_HEADERS_H
#define SLOMO_HEADERS_H

#include "packet.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ESP 50

/* Five-tuple as it stands in the packet (network order), padded to 16 bytes with zeros. */
struct flow_key {
	uint32_t source;
	uint32_t destination;
	uint16_t source_port;
	uint16_t destination_port;
	uint8_t protocol;
	uint8_t zeros[3];
};

/* Places inside one frame; `ip` is NULL where the frame is not a whole IPv4 packet, `transport` where no ports are. */
struct headers {
	uint8_t *ip;
	uint8_t *transport;
	uint8_t *payload; /* behind UDP or TCP, else behind IP, else behind Ethernet */
	uint32_t payload_bytes;
	uint16_t ip_bytes; /* total length by the IP header */
	uint8_t protocol;
};

static inline uint16_t load16(const uint8_t *place)
{
	return (uint16_t)(place[0] << 8 | place[1]);
}

static inline uint32_t load32(const uint8_t *place)
{
	return (uint32_t)load16(place) << 16 | load16(place + 2);
}

static inline void store16(uint8_t *place, uint16_t number)
{
	place[0] = (uint8_t)(number >> 8);
	place[1] = (uint8_t)number;
}

static inline void store32(uint8_t *place, uint32_t number)
{
	store16(place, (uint16_t)(number >> 16));
	store16(place + 2, (uint16_t)number);
}

/* Find the headers of a frame, never looking beyond its end. */
struct headers headers_find(const struct packet *packet);

/* Five-tuple of a packet whose `ip` is not NULL; ports are zero where there are none. */
struct flow_key headers_flow(const struct headers *headers);

/* Internet checksum (RFC 1071) of `bytes` bytes. */
uint16_t checksum_of(const uint8_t *place, uint32_t bytes);

/* Update a checksum for one changed 16-bit or 32-bit field (RFC 1624, equation 3). */
void checksum_update16(uint8_t *checksum, uint16_t before, uint16_t after);
void checksum_update32(uint8_t *checksum, uint32_t before, uint32_t after);

/* Replace the source or the destination address and port, both checksums included (a UDP checksum of 0 stays 0). */
void headers_rewrite(const struct headers *headers, bool source, uint32_t address, uint16_t port);

/* Write the Ethernet addresses 02:00:00:00:xx:xx for the next hop and 02:00:00:00:00:01 for ourselves. */
void ethernet_address(struct packet *packet, uint16_t next_hop);

#endif
