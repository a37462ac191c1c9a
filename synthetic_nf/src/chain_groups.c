/*
 * Control groups have names, so they would stay behind where the manager is killed. A watcher in a session of its own
 * waits for the end of a pipe that only the manager holds: the kernel closes it, however the manager ends. The stages
 * die with the manager (PR_SET_PDEATHSIG); then the watcher removes the groups and ends.
 */
#define _GNU_SOURCE
#include "chain_groups.h"

#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 400 /* 5 ms each */

static int alive = -1; /* our end of the watcher's pipe */

/* Members of a group that did not end with the manager, e.g. stopped ones. */
static void kill_members(const char *group)
{
	char path[PLAN_PATH_BYTES + 16];
	FILE *stream;
	int pid;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	stream = fopen(path, "r");
	while (stream && fscanf(stream, "%d", &pid) == 1)
		if (pid > 0)
			kill(pid, SIGKILL);
	if (stream)
		fclose(stream);
}

void chain_groups_remove(const struct chain_plan *plan)
{
	const struct timespec pause = { 0, 5000000 };

	for (unsigned round = 0; round < ROUNDS; round++) {
		bool left = false;

		for (unsigned g = plan->group_count; g-- > 0;)
			if (rmdir(plan->groups[g]) != 0 && errno != ENOENT) {
				kill_members(plan->groups[g]);
				left = true;
			}
		if (!left)
			return;
		nanosleep(&pause, NULL);
	}
}

static _Noreturn void watch(const struct chain_plan *plan, int end)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	char byte;

	setsid();
	prctl(PR_SET_PDEATHSIG, 0);
	prctl(PR_SET_NAME, "chain-watcher");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	for (int file = 0; file <= 2 && nothing >= 0; file++)
		dup2(nothing, file); /* whoever reads the manager's output must see its end */
	while (read(end, &byte, 1) < 0 && errno == EINTR)
		;
	chain_groups_remove(plan);
	_Exit(0);
}

static void remove_made(void);
static const struct chain_plan *made;

/* Version 2: a group hands the controller on to those in it only when told. No such file in version 1. */
static void hand_on_controller(const char *group)
{
	char path[PLAN_PATH_BYTES + 32];
	const char *slash = strrchr(group, '/');
	int file;

	snprintf(path, sizeof(path), "%.*s/cgroup.subtree_control", slash ? (int)(slash - group) : 0, group);
	file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return;
	if (write(file, "+cpu", 4) != 4)
		note("'%s' cannot hand the processor controller on: %s", path, strerror(errno));
	close(file);
}

void chain_groups_make(const struct chain_plan *plan)
{
	int ends[2];
	pid_t watcher;

	if (!plan->group_count)
		return;
	if (pipe2(ends, O_CLOEXEC) != 0 || (watcher = fork()) < 0)
		fail(EXIT_TESTBED, "see `ulimit -u`", "the watcher of the control groups cannot start: %s", strerror(errno));
	if (watcher == 0) {
		close(ends[1]);
		if (fork() == 0) /* not the manager's child: it outlives it, and is nobody's to wait for */
			watch(plan, ends[0]);
		_Exit(0);
	}
	close(ends[0]);
	waitpid(watcher, NULL, 0);
	alive = ends[1];
	made = plan;
	message_before_failure(remove_made);
	for (unsigned g = 0; g < plan->group_count; g++) {
		hand_on_controller(plan->groups[g]);
		if (mkdir(plan->groups[g], 0755) != 0)
			fail(EXIT_TESTBED, "run as root, or have the tree delegated to you", "control group '%s' cannot be made: %s",
			     plan->groups[g], strerror(errno));
	}
}

static void remove_made(void)
{
	if (alive >= 0 && made)
		chain_groups_remove(made);
}

void chain_groups_let_go(void)
{
	if (alive >= 0)
		close(alive);
	alive = -1; /* a stage that fails leaves the groups to the manager */
	message_before_failure(NULL);
}
