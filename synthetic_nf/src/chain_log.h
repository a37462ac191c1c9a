/*
 * What a stage writes to storage, as NFVnice's libnf (SIGCOMM'17, section 3.4): a buffer is gathered and written when it is
 * full; an asynchronous stage goes on with a second one, and waits only while both are full.
 */
#ifndef SLOMO_CHAIN_LOG_H
#define SLOMO_CHAIN_LOG_H

#include "chain_plan.h"
#include "packet.h"

struct chain_log;

/* NULL where the stage writes nothing; ends the process where its directory takes no file. */
struct chain_log *chain_log_open(const struct plan_stage *stage);

void chain_log_add(struct chain_log *log, const struct packet *packets, uint32_t count);

#endif
