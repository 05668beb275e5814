/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ownership by scope. A local that owns something says so in its declaration and gives it away
 * only through take_fd() or take_ptr(), so a reader sees every transfer. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free_fn(void *p)
{
    free(*(void **)p);
}

/* Closes without disturbing errno, so that a cleanup never hides the error being returned. */
static inline void cleanup_close_fn(const int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd);
        errno = saved;
    }
}

static inline void cleanup_fclose_fn(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

static inline void cleanup_closedir_fn(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

#define cleanup_free CLEANUP(cleanup_free_fn)
#define cleanup_close CLEANUP(cleanup_close_fn)
#define cleanup_fclose CLEANUP(cleanup_fclose_fn)
#define cleanup_closedir CLEANUP(cleanup_closedir_fn)

static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -EBADF;
    return taken;
}

/* Closes *fd if open and marks it closed. */
static inline void close_fd(int *fd)
{
    cleanup_close_fn(fd);
    *fd = -EBADF;
}

/* Returns the value of a struct and leaves zeros, so that its cleanup has nothing to do. */
#define take_struct(s)                                                                         \
    ({                                                                                         \
        __typeof__(s) taken_ = (s);                                                            \
        (s) = (__typeof__(s)){0};                                                              \
        taken_;                                                                                \
    })

#define take_ptr(p)                                                                            \
    ({                                                                                         \
        __typeof__(p) taken_ = (p);                                                            \
        (p) = NULL;                                                                            \
        taken_;                                                                                \
    })
