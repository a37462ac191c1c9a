/* Network functions that need DPDK's mbufs get some that point into our buffers. */
#ifndef SLOMO_CHAIN_MBUFS_H
#define SLOMO_CHAIN_MBUFS_H

#include "chain_memory.h"
#include "packet.h"

/* Take a burst of them, once; nothing without DPDK. */
void chain_mbufs_take(void);

/* Let mbuf i stand for packet i, and take over what the network function made of it. */
void chain_mbufs_lend(struct packet *packets, struct chain_buffer *const *buffers, uint32_t count, uint32_t room);

#endif
