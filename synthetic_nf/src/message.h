/* Messages to people, on stderr, in the manner of the library: what is wrong, then one hint; and the exit codes. */
#ifndef SLOMO_MESSAGE_H
#define SLOMO_MESSAGE_H

#define EXIT_USAGE 2   /* a flag or a file given by the user is wrong */
#define EXIT_TESTBED 3 /* the machine lacks something: memory, a core, a port */
#define EXIT_FAULT 70  /* a fault of this program */

/* Print "slomo-nf: error: ..." and "hint: ..." and end the process with `code`. */
_Noreturn void fail(int code, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Called once before fail() ends the process: to remove what would stay behind. */
void message_before_failure(void (*clean)(void));

/* Print one remark that does not end the run. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* calloc that fails with a message instead of returning NULL. */
void *allocate(unsigned long count, unsigned long size);

#endif
