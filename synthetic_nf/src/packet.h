/* A packet as every network function sees it, whatever it came from. */
#ifndef SLOMO_PACKET_H
#define SLOMO_PACKET_H

#include <stdint.h>

#define BURST_MOST 256

enum verdict { VERDICT_SEND, VERDICT_DROP };

struct packet {
	uint8_t *data;   /* first byte of the Ethernet header */
	uint32_t length; /* contiguous bytes at `data` */
	enum verdict verdict;
	void *handle; /* the rte_mbuf in the DPDK build */
	uint16_t port; /* where it came in */
};

#endif
