/* SPDX-License-Identifier: Apache-2.0 */

/* See progress.h. A thread writes the line, because the caller waits for boxes. */

#include "cli/progress.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SILENCE_MS = 500, STEP_MS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool is_running;
static bool is_over;
static char text[96];

/* Waits for the end; false when `ms` have passed before. The lock is held. */
static bool wait_for_end(unsigned ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!is_over) {
        if (pthread_cond_timedwait(&changed, &lock, &until) != 0)
            return is_over;
    }
    return true;
}

static void *show(void *begin)
{
    uint64_t begin_ms = *(const uint64_t *)begin;
    (void)pthread_mutex_lock(&lock);
    bool shown = false;
    for (unsigned ms = SILENCE_MS; !wait_for_end(ms); ms = STEP_MS) {
        (void)fprintf(
            stderr, "\r\033[K%s … %.1f s", text, (double)(clock_ms() - begin_ms) / 1000);
        shown = true;
    }
    if (shown)
        (void)fputs("\r\033[K", stderr);
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

void progress_begin(const char *format, ...)
{
    static uint64_t begin_ms;
    sigset_t all, before;
    va_list args;
    if (is_running || !isatty(STDERR_FILENO))
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *p = text; *p; p++)
        *p = (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p;
    begin_ms = clock_ms();
    is_over = false;
    (void)sigfillset(&all); /* signals are for the caller's thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    is_running = pthread_create(&thread, NULL, show, &begin_ms) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_end(void)
{
    if (!is_running)
        return;
    (void)pthread_mutex_lock(&lock);
    is_over = true;
    (void)pthread_cond_signal(&changed);
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_join(thread, NULL);
    is_running = false;
}
