/* SPDX-License-Identifier: Apache-2.0 */

/* See thread.h. */

#include "base/os/thread.h"

enum { STACK_BYTES = 512 << 10 };

int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (!ret)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(ret ? ret : &thread, &attr, fn, arg);
    (void)pthread_attr_destroy(&attr);
    return -r;
}
