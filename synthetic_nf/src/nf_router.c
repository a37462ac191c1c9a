/* IP router: longest-prefix match, TTL, new Ethernet addresses (the IP router of SLOMO has 131 k routes). */
#include "headers.h"
#include "lpm.h"
#include "message.h"
#include "nf.h"
#include "random.h"
#include "text_file.h"

#include <stdio.h>
#include <stdlib.h>

#define IP_TTL 8
#define IP_CHECKSUM 10
#define IP_DESTINATION 16
#define LONG_PREFIX_SHARE 20 /* one generated prefix of 20 is longer than /24 */
#define HOPS 256

enum { COUNTER_LOOKUPS, COUNTER_NO_ROUTE, COUNTER_TTL, COUNTER_NOT_IP };

static struct route *read_routes(const char *path, uint32_t *count)
{
	struct text_file file = text_file_read(path);
	struct route *routes = allocate(file.count, sizeof(*routes));
	char prefix[32], rest;
	unsigned hop;

	for (unsigned i = 0; i < file.count; i++) {
		if (sscanf(file.lines[i], "%31s %u %c", prefix, &hop, &rest) != 2 || hop > UINT16_MAX ||
		    parse_prefix(prefix, &routes[i].prefix, &routes[i].length) != 0)
			fail(EXIT_USAGE, "a line is `192.0.2.0/24 7`, hop 0..65535", "'%s' line %u is no route: '%s'", path,
			     file.numbers[i], file.lines[i]);
		routes[i].next_hop = (uint16_t)hop;
	}
	*count = file.count;
	text_file_release(&file);
	return routes;
}

/* A default route and random prefixes: /16../24 as in a backbone's table, one of twenty /25../32. */
static struct route *generate_routes(uint32_t wanted, uint64_t seed, uint32_t *count)
{
	struct route *routes = allocate(wanted + 1, sizeof(*routes));

	for (uint32_t i = 1; i <= wanted; i++) {
		uint64_t bits = random_next(&seed), more = random_next(&seed);
		uint8_t length = (uint8_t)(more % LONG_PREFIX_SHARE ? 16 + (more >> 8) % 9 : 25 + (more >> 8) % 8);

		routes[i] = (struct route){ (uint32_t)bits & ~0u << (32 - length), length, (uint16_t)((bits >> 32) % HOPS) };
	}
	*count = wanted + 1;
	return routes;
}

static void router_start(struct nf_instance *self)
{
	const struct options *options = self->options;
	uint32_t count;
	struct route *routes = options->routes_file ? read_routes(options->routes_file, &count)
						    : generate_routes((uint32_t)options->routes, (uint64_t)options->seed, &count);

	self->state = lpm_create(routes, count, self->number);
	free(routes);
	self->counters[COUNTER_LOOKUPS].name = "lookups";
	self->counters[COUNTER_NO_ROUTE].name = "no_route";
	self->counters[COUNTER_TTL].name = "ttl_expired";
	self->counters[COUNTER_NOT_IP].name = "not_ipv4";
}

static void drop(struct nf_instance *self, struct packet *packet, unsigned counter)
{
	packet->verdict = VERDICT_DROP;
	counter_add(&self->counters[counter].value, 1);
}

static void forward(struct nf_instance *self, struct packet *packet, uint32_t next_hop)
{
	uint8_t *ip = packet->data + ETHERNET_BYTES;

	if (next_hop == LPM_NO_ROUTE) {
		drop(self, packet, COUNTER_NO_ROUTE);
	} else if (ip[IP_TTL] <= 1) {
		drop(self, packet, COUNTER_TTL);
	} else {
		uint16_t before = load16(ip + IP_TTL);

		ip[IP_TTL]--;
		checksum_update16(ip + IP_CHECKSUM, before, load16(ip + IP_TTL));
		ethernet_address(packet, (uint16_t)next_hop);
	}
}

static void router_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	uint32_t addresses[BURST_MOST], hops[BURST_MOST], indices[BURST_MOST], found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct headers headers = headers_find(&packets[i]);

		if (!headers.ip) {
			drop(self, &packets[i], COUNTER_NOT_IP);
			continue;
		}
		indices[found] = i;
		addresses[found++] = load32(headers.ip + IP_DESTINATION);
	}
	lpm_lookup(self->state, addresses, hops, found);
	for (uint32_t i = 0; i < found; i++)
		forward(self, &packets[indices[i]], hops[i]);
	counter_add(&self->counters[COUNTER_LOOKUPS].value, found);
	counter_add(&self->accesses, found);
}

static void router_stop(struct nf_instance *self)
{
	lpm_release(self->state);
}

const struct nf nf_router = {
	.name = "router",
	.summary = "longest-prefix match (rte_lpm), TTL and checksum, Ethernet address of the next hop",
	.start = router_start,
	.process = router_process,
	.stop = router_stop,
};
