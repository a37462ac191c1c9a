/* A file without a name, written past the page cache where it can be, and to the device before a write returns. */
#define _GNU_SOURCE
#include "chain_log.h"

#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096                   /* of O_DIRECT */
#define FILE_BYTES (64u << 20)       /* then from the beginning again */
#define HINT "give another place: --storage-dir"

struct chain_log {
	const struct plan_stage *stage;
	int file;
	uint8_t *buffers[2];
	size_t size, used;
	off_t at;
	unsigned filling;
	bool writing; /* the other buffer */
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static void write_whole(struct chain_log *log, const uint8_t *bytes)
{
	if (pwrite(log->file, bytes, log->size, log->at) != (ssize_t)log->size)
		fail(EXIT_TESTBED, HINT, "stage '%s' cannot write to '%s': %s", log->stage->name, log->stage->log_directory,
		     strerror(errno));
	log->at = log->at + 2 * (off_t)log->size > (off_t)FILE_BYTES ? 0 : log->at + (off_t)log->size;
}

static void *write_on(void *argument)
{
	struct chain_log *log = argument;

	pthread_mutex_lock(&log->lock);
	for (;;) {
		while (!log->writing)
			pthread_cond_wait(&log->changed, &log->lock);
		pthread_mutex_unlock(&log->lock);
		write_whole(log, log->buffers[!log->filling]);
		pthread_mutex_lock(&log->lock);
		log->writing = false;
		pthread_cond_signal(&log->changed);
	}
	return NULL;
}

struct chain_log *chain_log_open(const struct plan_stage *stage)
{
	const int flags = O_TMPFILE | O_WRONLY | O_DSYNC | O_CLOEXEC;
	struct chain_log *log;
	pthread_t thread;

	if (!stage->log_bytes)
		return NULL;
	log = allocate(1, sizeof(*log));
	log->stage = stage;
	log->size = (stage->log_buffer + BLOCK - 1) / BLOCK * BLOCK;
	log->file = open(stage->log_directory, flags | O_DIRECT, 0600);
	if (log->file < 0)
		log->file = open(stage->log_directory, flags, 0600);
	if (log->file < 0)
		fail(EXIT_TESTBED, HINT, "stage '%s' cannot make a file in '%s': %s", stage->name, stage->log_directory,
		     strerror(errno));
	for (unsigned i = 0; i < 2; i++)
		if (posix_memalign((void **)&log->buffers[i], BLOCK, log->size) != 0)
			fail(EXIT_TESTBED, "lower buffer_kib", "stage '%s' has no memory for what it writes", stage->name);
	pthread_mutex_init(&log->lock, NULL);
	pthread_cond_init(&log->changed, NULL);
	if (!stage->log_blocking && pthread_create(&thread, NULL, write_on, log) != 0)
		fail(EXIT_TESTBED, "see `ulimit -u`", "stage '%s' cannot start the thread that writes", stage->name);
	return log;
}

static void flush(struct chain_log *log)
{
	log->used = 0;
	if (log->stage->log_blocking) {
		write_whole(log, log->buffers[log->filling]);
		return;
	}
	pthread_mutex_lock(&log->lock);
	while (log->writing)
		pthread_cond_wait(&log->changed, &log->lock);
	log->filling = !log->filling;
	log->writing = true;
	pthread_cond_signal(&log->changed);
	pthread_mutex_unlock(&log->lock);
}

void chain_log_add(struct chain_log *log, const struct packet *packets, uint32_t count)
{
	size_t each = log->stage->log_bytes;

	for (uint32_t i = 0; i < count; i++) {
		size_t some = packets[i].length < each ? packets[i].length : each;
		uint8_t *place;

		if (log->used + each > log->size)
			flush(log);
		place = log->buffers[log->filling] + log->used;
		memcpy(place, packets[i].data, some);
		memset(place + some, 0, each - some);
		log->used += each;
	}
}
