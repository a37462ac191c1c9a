/*
 * The kernel's TCP as a source and a sink of a chain: two processes in network namespaces of their own, each behind a tun
 * device whose other end is the manager's. Data go through the chain; acknowledgements come back beside it, after the
 * chain's round-trip time. Rings that fill are told by ECN (RFC 3168).
 */
#ifndef SLOMO_CHAIN_TCP_H
#define SLOMO_CHAIN_TCP_H

#include "chain_memory.h"

struct chain_tcp;

/* Start sender and receiver of a chain; ends the process where this machine does not allow it. */
struct chain_tcp *chain_tcp_start(struct chain_memory *memory, unsigned chain);

/* The next packet of the sender into a buffer behind a made-up Ethernet header; false where none waits. */
bool chain_tcp_take(struct chain_tcp *tcp, struct chain_buffer *buffer);

/* Give a packet to the receiver. */
void chain_tcp_give(struct chain_tcp *tcp, const struct chain_buffer *buffer);

/* Carry acknowledgements back that are due. */
void chain_tcp_return(struct chain_tcp *tcp, uint64_t now_ticks);

/* Mark a packet of an ECN transport that found a long ring; whether it was marked. */
bool chain_tcp_mark(struct chain_buffer *buffer);

void chain_tcp_end(struct chain_tcp *tcp);

#endif
