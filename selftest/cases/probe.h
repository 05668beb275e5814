/* For the C attack cases: reports which attempts were stopped and which were not. A case gets this
 * file in its box by `files: probe.h`. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The harness left a barrier out: choose the harmless variant. */
static inline int control(void)
{
    return getenv("CONTROL") != NULL;
}

static inline const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static inline const char *errno_name(int error)
{
    const char *name = error == 0 ? "success" : strerrorname_np(error);
    return name ? name : "?";
}

/* Flushed line by line, so that no child prints it again. */
static inline void blocked(const char *what)
{
    printf("blocked: %s %s\n", what, errno_name(errno));
    fflush(stdout);
}

static inline void breach(const char *what, const char *how)
{
    printf("BREACH: %s %s\n", what, how);
    fflush(stdout);
}

static inline void refused(const char *what, long result, const int *allowed)
{
    if (result >= 0) {
        breach(what, "success");
        return;
    }
    for (; *allowed; allowed++)
        if (errno == *allowed) {
            blocked(what);
            return;
        }
    breach(what, errno_name(errno));
}

/* The call must fail with one of the errnos listed; success and any other errno is a breach. */
#define REFUSED(what, call, ...)                                                               \
    do {                                                                                       \
        errno = 0;                                                                             \
        long result_ = (long)(call);                                                           \
        refused(what, result_, (const int[]){__VA_ARGS__, 0});                                 \
    } while (0)

/* The filter must answer before the kernel looks at the arguments. */
#define FILTERED(what, call) REFUSED(what, call, EPERM, ENOSYS)

static inline int done(void)
{
    puts("done");
    return 0;
}
