/* One encrypt-then-authenticate session on a DPDK crypto device. */
#include "crypto_session.h"

#include "message.h"
#include "packet.h"

#include <ctype.h>
#include <rte_cryptodev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IV_BYTES 16
#define DIGEST_BYTES 12
#define IV_OFFSET (sizeof(struct rte_crypto_op) + sizeof(struct rte_crypto_sym_op))
#define DESCRIPTORS 512
#define NAME_MOST 64

/* 16 and 20 bytes; the same ones are in the test that decrypts. */
static const uint8_t CIPHER_KEY[] = "slomo-cipher-key";
static const uint8_t HASH_KEY[] = "slomo-hmac-sha1-key.";

struct crypto_session {
	uint8_t device;
	void *session;
	struct rte_mempool *sessions;
	struct rte_mempool *operations;
};

/* crypto_openssl0 -> crypto_openssl3 for instance 3, since every instance has its own device. */
static uint8_t find_device(const char *name, unsigned number)
{
	char own[NAME_MOST];
	int device, stem = (int)strlen(name);

	while (number && stem > 0 && isdigit((unsigned char)name[stem - 1]))
		stem--;
	if (number)
		snprintf(own, sizeof(own), "%.*s%u", stem, name, number);
	else
		snprintf(own, sizeof(own), "%s", name);
	device = rte_cryptodev_get_dev_id(own);
	if (device < 0 && rte_eal_hotplug_add("vdev", own, "") == 0)
		device = rte_cryptodev_get_dev_id(own);
	if (device < 0)
		fail(EXIT_TESTBED, "use --crypto-device crypto_openssl0 or crypto_aesni_mb0", "there is no crypto device '%s'", own);
	return (uint8_t)device;
}

static void start_device(struct crypto_session *session)
{
	struct rte_cryptodev_config config = { .socket_id = SOCKET_ID_ANY, .nb_queue_pairs = 1 };
	struct rte_cryptodev_qp_conf queue = { .nb_descriptors = DESCRIPTORS, .mp_session = session->sessions };

	config.socket_id = rte_cryptodev_socket_id(session->device);
	if (rte_cryptodev_configure(session->device, &config) != 0 ||
	    rte_cryptodev_queue_pair_setup(session->device, 0, &queue, config.socket_id) != 0 ||
	    rte_cryptodev_start(session->device) != 0)
		fail(EXIT_TESTBED, "try --crypto-device crypto_openssl0", "crypto device %u does not start", session->device);
}

static void create_pools(struct crypto_session *session, unsigned number)
{
	char name[NAME_MOST];
	uint32_t private_bytes = rte_cryptodev_sym_get_private_session_size(session->device);

	snprintf(name, sizeof(name), "sessions%u", number);
	session->sessions = rte_cryptodev_sym_session_pool_create(name, 4, private_bytes, 0, 0, SOCKET_ID_ANY);
	snprintf(name, sizeof(name), "operations%u", number);
	session->operations = rte_crypto_op_pool_create(name, RTE_CRYPTO_OP_TYPE_SYMMETRIC, 2 * DESCRIPTORS, 0, IV_BYTES,
							SOCKET_ID_ANY);
	if (!session->sessions || !session->operations)
		fail(EXIT_TESTBED, "raise --memory-mib", "no memory for crypto sessions: %s", rte_strerror(rte_errno));
}

static void create_session(struct crypto_session *session)
{
	struct rte_crypto_sym_xform hash = { .type = RTE_CRYPTO_SYM_XFORM_AUTH };
	struct rte_crypto_sym_xform cipher = { .type = RTE_CRYPTO_SYM_XFORM_CIPHER, .next = &hash };

	cipher.cipher.op = RTE_CRYPTO_CIPHER_OP_ENCRYPT;
	cipher.cipher.algo = RTE_CRYPTO_CIPHER_AES_CBC;
	cipher.cipher.key.data = CIPHER_KEY;
	cipher.cipher.key.length = sizeof(CIPHER_KEY) - 1;
	cipher.cipher.iv.offset = IV_OFFSET;
	cipher.cipher.iv.length = IV_BYTES;
	hash.auth.op = RTE_CRYPTO_AUTH_OP_GENERATE;
	hash.auth.algo = RTE_CRYPTO_AUTH_SHA1_HMAC;
	hash.auth.key.data = HASH_KEY;
	hash.auth.key.length = sizeof(HASH_KEY) - 1;
	hash.auth.digest_length = DIGEST_BYTES;
	session->session = rte_cryptodev_sym_session_create(session->device, &cipher, session->sessions);
	if (!session->session)
		fail(EXIT_TESTBED, "try --crypto-device crypto_openssl0", "the crypto device offers no AES-CBC with HMAC-SHA1: %s",
		     rte_strerror(rte_errno));
}

struct crypto_session *crypto_session_open(const char *name, unsigned number)
{
	struct crypto_session *session = allocate(1, sizeof(*session));

	session->device = find_device(name, number);
	create_pools(session, number);
	start_device(session);
	create_session(session);
	return session;
}

void crypto_session_close(struct crypto_session *session)
{
	rte_cryptodev_sym_session_free(session->device, session->session);
	rte_cryptodev_stop(session->device);
	rte_mempool_free(session->operations);
	rte_mempool_free(session->sessions);
	free(session);
}

static void fill(struct crypto_session *session, struct rte_crypto_op *operation, const struct crypto_job *job)
{
	struct rte_crypto_sym_op *sym = operation->sym;
	uint32_t digest = job->hash_offset + job->hash_bytes;

	rte_crypto_op_attach_sym_session(operation, session->session);
	sym->m_src = job->mbuf;
	sym->cipher.data.offset = job->cipher_offset;
	sym->cipher.data.length = job->cipher_bytes;
	sym->auth.data.offset = job->hash_offset;
	sym->auth.data.length = job->hash_bytes;
	sym->auth.digest.data = rte_pktmbuf_mtod_offset(job->mbuf, uint8_t *, digest);
	sym->auth.digest.phys_addr = rte_pktmbuf_iova_offset(job->mbuf, digest);
	memcpy(rte_crypto_op_ctod_offset(operation, uint8_t *, IV_OFFSET), job->initialisation, IV_BYTES);
}

void crypto_session_run(struct crypto_session *session, struct crypto_job *jobs, uint32_t count)
{
	struct rte_crypto_op *operations[BURST_MOST], *finished[BURST_MOST];
	uint32_t queued = 0, back = 0;

	for (uint32_t i = 0; i < count; i++)
		jobs[i].done = false;
	if (count == 0 || rte_crypto_op_bulk_alloc(session->operations, RTE_CRYPTO_OP_TYPE_SYMMETRIC, operations,
						   (uint16_t)count) != count)
		return;
	for (uint32_t i = 0; i < count; i++)
		fill(session, operations[i], &jobs[i]);
	while (back < count) {
		queued += rte_cryptodev_enqueue_burst(session->device, 0, operations + queued, (uint16_t)(count - queued));
		back += rte_cryptodev_dequeue_burst(session->device, 0, finished + back, (uint16_t)(count - back));
	}
	for (uint32_t i = 0; i < count; i++)
		jobs[i].done = operations[i]->status == RTE_CRYPTO_OP_STATUS_SUCCESS;
	rte_mempool_put_bulk(session->operations, (void **)operations, count);
}
