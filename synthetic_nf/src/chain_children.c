/* Processes of stages; a move is make-before-break (NUMASFP, COMSNETS'22, migrates VNFs so): no packet is lost by it. */
#define _GNU_SOURCE
#include "chain_children.h"

#include "chain_groups.h"
#include "chain_marks.h"
#include "chain_stage.h"
#include "clock.h"
#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_ROUNDS 1000

static pid_t start(const struct chain_children *children, unsigned number, const struct plan_move *move)
{
	pid_t pid = fork();

	if (pid < 0)
		fail(EXIT_TESTBED, "see `ulimit -u`", "a stage cannot start: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != children->manager)
			_Exit(EXIT_TESTBED);
		chain_groups_let_go();
		chain_stage_run(children->memory, number, move);
	}
	return pid;
}

void chain_children_start(struct chain_children *children, struct chain_memory *memory, struct chain_plan *plan)
{
	*children = (struct chain_children){ .memory = memory, .plan = plan, .manager = getpid() };
	if (plan->live)
		fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	for (unsigned s = 0; s < plan->stage_count; s++)
		memory->stages[s].pid = start(children, s, NULL);
}

static void begin(struct chain_children *children, const struct plan_move *move)
{
	struct plan_stage *stage = &children->plan->stages[move->stage];
	struct stage_state *state = &children->memory->stages[move->stage];

	children->cpu_before = stage->cpu;
	stage->cpu = move->cpu; /* the heir reads it */
	state->heir_ready = state->left = 0;
	children->begun_ticks = clock_ticks();
	children->heir = start(children, move->stage, move);
}

static void report(const struct chain_children *children, const struct plan_move *move)
{
	const struct stage_state *state = &children->memory->stages[move->stage];

	printf("{\"event\":\"moved\",\"stage\":\"%s\",\"pid\":%d,\"cpu\":%d,\"node\":%d,\"at_ms\":%.3f,\"prepared_ms\":%.3f,"
	       "\"handover_us\":%.3f}\n", children->plan->stages[move->stage].name, (int)state->pid, move->cpu, move->node, move->at_ms,
	       (double)(state->left_ticks - children->begun_ticks) * 1e3 / clock_hz(),
	       (double)(state->taken_over_ticks - state->left_ticks) * 1e6 / clock_hz());
	fflush(stdout);
}

static void go_on(struct chain_children *children, const struct plan_move *move)
{
	struct stage_state *state = &children->memory->stages[move->stage];

	if (!children->leaving) {
		if (!__atomic_load_n(&state->heir_ready, __ATOMIC_ACQUIRE))
			return;
		children->leaving = state->pid;
		__atomic_store_n(&state->leave, 1, __ATOMIC_RELEASE);
		chain_marks_wake_one(state);
	} else if (!__atomic_load_n(&state->leave, __ATOMIC_ACQUIRE) && !__atomic_load_n(&state->left, __ATOMIC_ACQUIRE)) {
		state->pid = children->heir;
		children->heir = children->leaving = 0;
		children->next_move++;
		report(children, move);
	}
}

void chain_children_move(struct chain_children *children, double time_ms)
{
	const struct plan_move *move = &children->plan->moves[children->next_move];

	if (children->next_move == children->plan->move_count)
		return;
	if (children->heir)
		go_on(children, move);
	else if (time_ms >= move->at_ms)
		begin(children, move);
}

void chain_children_hear(struct chain_children *children)
{
	struct chain_plan *plan = children->plan;
	char *line = children->heard, *end;
	ssize_t count;

	if (!plan->live)
		return;
	count = read(STDIN_FILENO, children->heard + children->heard_count, HEARD_BYTES - children->heard_count);
	if (count <= 0)
		return;
	if (children->next_move == plan->move_count)
		children->next_move = plan->move_count = 0; /* all are done: their places are free */
	children->heard_count += (size_t)count;
	for (char *most = children->heard + children->heard_count; (end = memchr(line, '\n', (size_t)(most - line))); line = end + 1) {
		*end = '\0';
		chain_plan_add(plan, line);
	}
	children->heard_count -= (size_t)(line - children->heard);
	memmove(children->heard, line, children->heard_count);
}

static bool is_stage(const struct chain_children *children, pid_t pid)
{
	for (unsigned s = 0; s < children->plan->stage_count; s++)
		if (children->memory->stages[s].pid == pid)
			return true;
	return pid == children->heir;
}

static void stay(struct chain_children *children)
{
	const struct plan_move *move = &children->plan->moves[children->next_move++];
	struct plan_stage *stage = &children->plan->stages[move->stage];

	printf("{\"event\":\"stayed\",\"stage\":\"%s\",\"cpu\":%d,\"node\":%d}\n", stage->name, move->cpu, move->node);
	fflush(stdout);
	stage->cpu = children->cpu_before;
	children->heir = 0;
}

int chain_children_ended(struct chain_children *children)
{
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	if (pid <= 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && (pid == children->leaving || !is_stage(children, pid)))
		return 0; /* left, as asked */
	if (pid == children->heir && !children->leaving) {
		stay(children);
		return 0;
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAULT;
	note("stage process %d was killed by signal %d", (int)pid, WTERMSIG(status));
	return EXIT_TESTBED;
}

void chain_children_end(struct chain_children *children)
{
	const struct timespec pause = { 0, 1000000 };
	struct chain_memory *memory = children->memory;

	memory->stop = 1;
	for (unsigned round = 0; round < END_ROUNDS; round++) {
		chain_marks_wake_all(memory);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		nanosleep(&pause, NULL);
	}
	for (unsigned s = 0; s < memory->plan->stage_count; s++)
		kill(memory->stages[s].pid, SIGKILL);
	if (children->heir)
		kill(children->heir, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
}
