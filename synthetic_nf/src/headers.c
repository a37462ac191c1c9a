/* Ethernet, IPv4, UDP and TCP headers. */
#include "headers.h"

#define ETHERTYPE_IPV4 0x0800
#define IP_PROTOCOL 9
#define IP_CHECKSUM 10
#define IP_SOURCE 12
#define IP_DESTINATION 16
#define UDP_BYTES 8
#define TCP_BYTES 20
#define UDP_CHECKSUM 6
#define TCP_CHECKSUM 16

/* Ports exist in the first fragment only, and only if the whole header is there. */
static void find_transport(struct headers *headers, uint32_t header_bytes)
{
	uint8_t *place = headers->ip + header_bytes;
	uint32_t left = headers->ip_bytes - header_bytes, size = 0;

	headers->payload = place;
	headers->payload_bytes = left;
	if (load16(headers->ip + 6) & 0x1fff)
		return;
	if (headers->protocol == PROTOCOL_UDP && left >= UDP_BYTES)
		size = UDP_BYTES;
	else if (headers->protocol == PROTOCOL_TCP && left >= TCP_BYTES)
		size = (uint32_t)(place[12] >> 4) * 4;
	if (size < UDP_BYTES || size > left)
		return;
	headers->transport = place;
	headers->payload = place + size;
	headers->payload_bytes = left - size;
}

struct headers headers_find(const struct packet *packet)
{
	struct headers headers = { 0 };
	uint8_t *ip = packet->data + ETHERNET_BYTES;
	uint32_t header_bytes, total;

	if (packet->length < ETHERNET_BYTES)
		return headers;
	headers.payload = ip;
	headers.payload_bytes = packet->length - ETHERNET_BYTES;
	if (packet->length < ETHERNET_BYTES + IPV4_BYTES || load16(packet->data + 12) != ETHERTYPE_IPV4)
		return headers;
	header_bytes = (ip[0] & 15u) * 4;
	total = load16(ip + 2);
	if (ip[0] >> 4 != 4 || header_bytes < IPV4_BYTES || total < header_bytes || total > headers.payload_bytes)
		return headers;
	headers.ip = ip;
	headers.ip_bytes = (uint16_t)total;
	headers.protocol = ip[IP_PROTOCOL];
	find_transport(&headers, header_bytes);
	return headers;
}

struct flow_key headers_flow(const struct headers *headers)
{
	struct flow_key key = { .protocol = headers->protocol };

	memcpy(&key.source, headers->ip + IP_SOURCE, 4);
	memcpy(&key.destination, headers->ip + IP_DESTINATION, 4);
	if (headers->transport) {
		memcpy(&key.source_port, headers->transport, 2);
		memcpy(&key.destination_port, headers->transport + 2, 2);
	}
	return key;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

uint16_t checksum_of(const uint8_t *place, uint32_t bytes)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i + 1 < bytes; i += 2)
		sum += load16(place + i);
	if (bytes & 1)
		sum += (uint32_t)place[bytes - 1] << 8;
	return (uint16_t)~fold(sum);
}

void checksum_update16(uint8_t *checksum, uint16_t before, uint16_t after)
{
	uint32_t sum = (uint16_t)~load16(checksum) + (uint32_t)(uint16_t)~before + after;

	store16(checksum, (uint16_t)~fold(sum));
}

void checksum_update32(uint8_t *checksum, uint32_t before, uint32_t after)
{
	checksum_update16(checksum, (uint16_t)(before >> 16), (uint16_t)(after >> 16));
	checksum_update16(checksum, (uint16_t)before, (uint16_t)after);
}

/* The transport checksum covers the addresses as well (pseudo header). */
static void rewrite_transport(const struct headers *headers, uint8_t *port_place, uint32_t before, uint32_t address,
			      uint16_t port)
{
	bool udp = headers->protocol == PROTOCOL_UDP;
	uint8_t *checksum = headers->transport + (udp ? UDP_CHECKSUM : TCP_CHECKSUM);

	if (!udp || load16(checksum) != 0) {
		checksum_update32(checksum, before, address);
		checksum_update16(checksum, load16(port_place), port);
		if (udp && load16(checksum) == 0)
			store16(checksum, 0xffff); /* RFC 768: zero means "none" */
	}
	store16(port_place, port);
}

void headers_rewrite(const struct headers *headers, bool source, uint32_t address, uint16_t port)
{
	uint8_t *place = headers->ip + (source ? IP_SOURCE : IP_DESTINATION);
	uint32_t before = load32(place);

	if (headers->transport)
		rewrite_transport(headers, headers->transport + (source ? 0 : 2), before, address, port);
	checksum_update32(headers->ip + IP_CHECKSUM, before, address);
	store32(place, address);
}

void ethernet_address(struct packet *packet, uint16_t next_hop)
{
	static const uint8_t OURSELVES[6] = { 2, 0, 0, 0, 0, 1 };
	uint8_t *place = packet->data;

	place[0] = 2;
	place[1] = place[2] = place[3] = 0;
	store16(place + 4, next_hop);
	memcpy(place + 6, OURSELVES, sizeof(OURSELVES));
}
