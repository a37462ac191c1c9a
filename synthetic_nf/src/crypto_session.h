/* One encrypt-then-authenticate session on a DPDK crypto device, used a burst at a time. */
#ifndef SLOMO_CRYPTO_SESSION_H
#define SLOMO_CRYPTO_SESSION_H

#include <rte_mbuf.h>
#include <stdbool.h>
#include <stdint.h>

struct crypto_session;

/* What to do with one packet; the 12 byte HMAC goes behind the hashed bytes. */
struct crypto_job {
	struct rte_mbuf *mbuf;
	uint32_t cipher_offset, cipher_bytes;
	uint32_t hash_offset, hash_bytes;
	const uint8_t *initialisation; /* 16 bytes inside the packet */
	bool done;
};

/* Start device `name` (e.g. crypto_openssl0, crypto_aesni_mb0; created if EAL did not) with one AES-CBC + SHA1 session. */
struct crypto_session *crypto_session_open(const char *name, unsigned number);
void crypto_session_close(struct crypto_session *session);

/* Run all jobs and wait for them; sets `done` of each. */
void crypto_session_run(struct crypto_session *session, struct crypto_job *jobs, uint32_t count);

#endif
