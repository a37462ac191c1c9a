/* The one seam between a writer and the system: every I/O call on files below a folder is counted, and the one of a
 * chosen number fails, writes less, or ends the process. Preloaded (ld.so(8)), so that SQLite's and Arrow's calls
 * pass through it as Python's do. Idea: libfiu, CrashMonkey (Mohan et al., OSDI'18).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum mode { COUNT, FAIL, FAIL_ON, SHORT, KILL_BEFORE, KILL_AFTER, CLOCK, READ_ONLY };
static char folder[PATH_MAX];
static size_t folder_length;
static int mode, fault, armed, record = -1;
static long wanted, calls;
static char is_ours[1 << 16];

void seam_arm(const char *below, int how, long number, int error, int recorded) {
    strncpy(folder, below, PATH_MAX - 1);
    folder_length = strlen(folder);
    mode = how, wanted = number, fault = error, record = recorded, calls = 0, armed = 1;
}
long seam_disarm(void) { armed = 0; return calls; }

static int below(const char *path) { return armed && path && !strncmp(path, folder, folder_length); }
static int ours(int fd) { return armed && fd >= 0 && fd < 1 << 16 && is_ours[fd]; }

/* Count a call; return 1 where it is to fail. `writes`: 1 where a full disk would refuse it, 2 where it is of a path
 * as well, which no signal interrupts.
 */
static int fails(int writes) {
    long number = __sync_add_and_fetch(&calls, 1);
    if (mode == FAIL && fault == EINTR && writes == 2) return 0;
    if (mode == READ_ONLY && writes) { errno = EROFS; return 1; }
    if (mode == FAIL_ON && number >= wanted && (writes || fault != ENOSPC)) { errno = fault; return 1; }
    if (number != wanted) return 0;
    if (mode == KILL_BEFORE) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    if (mode == FAIL && (writes || fault != ENOSPC)) { errno = fault; return 1; }
    return 0;
}
static void after(void) {
    if (mode == KILL_AFTER && calls >= wanted) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}
static void note(const void *data, size_t size, const char *format, ...) {
    char head[2 * PATH_MAX + 64];
    va_list list;
    if (record < 0) return;
    va_start(list, format);
    int length = vsnprintf(head, sizeof head, format, list);
    va_end(list);
    syscall(SYS_write, record, head, length);
    if (size) syscall(SYS_write, record, data, size);
}
#define NEXT(name) ({ static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name); next; })

static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < 1 << 16) is_ours[fd] = 1;
    if (fd >= 0) note(0, 0, "open\t%d\t%s\t%d\n", fd, path, flags);
    after();
    return fd;
}
static int passed(int fd) {
    if (fd >= 0 && fd < 1 << 16) is_ours[fd] = 0;
    return fd;
}
#define OPEN(name) \
int name(const char *path, int flags, ...) { \
    va_list list; va_start(list, flags); mode_t bits = va_arg(list, mode_t); va_end(list); \
    if (!below(path)) return passed(NEXT(name)(path, flags, bits)); \
    if (fails((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0)) return -1; \
    return opened(NEXT(name)(path, flags, bits), path, flags); \
}
OPEN(open)
OPEN(open64)
int openat(int at, const char *path, int flags, ...) {
    va_list list; va_start(list, flags); mode_t bits = va_arg(list, mode_t); va_end(list);
    return passed(NEXT(openat)(at, path, flags, bits));
}
int close(int fd) {
    if (ours(fd)) note(0, 0, "close\t%d\n", fd), is_ours[fd] = 0;
    return NEXT(close)(fd);
}
static ssize_t written(int fd, const void *data, off_t place, ssize_t done) {
    if (done > 0) note(data, done, "write\t%d\t%ld\t%zd\n", fd, (long)place, done);
    after();
    return done;
}
static size_t cut(size_t size) { return mode == SHORT && calls == wanted && size > 1 ? size / 2 : size; }
ssize_t write(int fd, const void *data, size_t size) {
    if (!ours(fd)) return NEXT(write)(fd, data, size);
    if (fails(1)) return -1;
    off_t place = fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    return written(fd, data, place, NEXT(write)(fd, data, cut(size)));
}
#define PWRITE(name, offset) \
ssize_t name(int fd, const void *data, size_t size, offset place) { \
    if (!ours(fd)) return NEXT(name)(fd, data, size, place); \
    if (fails(1)) return -1; \
    return written(fd, data, place, NEXT(name)(fd, data, cut(size), place)); \
}
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
ssize_t read(int fd, void *data, size_t size) {
    if (ours(fd) && fails(0)) return -1;
    return NEXT(read)(fd, data, size);
}
#define PREAD(name, offset) \
ssize_t name(int fd, void *data, size_t size, offset place) { \
    if (ours(fd) && fails(0)) return -1; \
    return NEXT(name)(fd, data, size, place); \
}
PREAD(pread, off_t)
PREAD(pread64, off64_t)
#define BY_FD(name, writes, declared, passed, text) \
int name declared { \
    if (!ours(fd)) return NEXT(name) passed; \
    if (fails(writes)) return -1; \
    int done = NEXT(name) passed; \
    if (!done) note(0, 0, text); \
    after(); \
    return done; \
}
#define SAID(...) __VA_ARGS__
BY_FD(fsync, 1, (int fd), (fd), SAID("sync\t%d\n", fd))
BY_FD(fdatasync, 1, (int fd), (fd), SAID("sync\t%d\n", fd))
BY_FD(ftruncate, 1, (int fd, off_t size), (fd, size), SAID("truncate\t%d\t%ld\n", fd, (long)size))
BY_FD(ftruncate64, 1, (int fd, off64_t size), (fd, size), SAID("truncate\t%d\t%ld\n", fd, (long)size))
BY_FD(fchmod, 1, (int fd, mode_t bits), (fd, bits), SAID("chmod\t%d\n", fd))
BY_FD(flock, 0, (int fd, int what), (fd, what), SAID("lock\t%d\n", fd))
#define BY_PATH(name, declared, passed, text) \
int name declared { \
    if (!below(path)) return NEXT(name) passed; \
    if (fails(2)) return -1; \
    int done = NEXT(name) passed; \
    if (!done) note(0, 0, text); \
    after(); \
    return done; \
}
BY_PATH(rename, (const char *path, const char *to), (path, to), SAID("rename\t%s\t%s\n", path, to))
BY_PATH(unlink, (const char *path), (path), SAID("unlink\t%s\n", path))
BY_PATH(rmdir, (const char *path), (path), SAID("rmdir\t%s\n", path))
BY_PATH(mkdir, (const char *path, mode_t bits), (path, bits), SAID("mkdir\t%s\n", path))
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = NEXT(clock_gettime)(clock, now);
    if (armed && mode == CLOCK && clock == CLOCK_REALTIME && calls >= wanted) now->tv_sec += fault;
    return done;
}
