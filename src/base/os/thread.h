/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

/* Starts a thread with a small stack: a server has one for each run, and half a megabyte is
 * enough for all of them. With a NULL `ret` the thread is detached. Returns 0 or negative
 * errno. */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg);
