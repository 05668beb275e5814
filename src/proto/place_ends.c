/* SPDX-License-Identifier: Apache-2.0 */

/* See place_ends.h. */

#include "proto/place_ends.h"

#include "base/buf.h"
#include "proto/place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK, PIECE = 16 << 10 };

static int option_of(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) < 0 ? -1 : value;
}

static bool is_socket(int fd, int type)
{
    return option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == type &&
           option_of(fd, SO_ACCEPTCONN) == 0;
}

bool place_end_is(enum place_end kind, int fd)
{
    static const int types[] = {
        [PLACE_END_MESSAGES] = SOCK_SEQPACKET, [PLACE_END_STREAM] = SOCK_STREAM};
    struct stat st;
    if (kind != PLACE_END_PIPE)
        return is_socket(fd, types[kind]);
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && !(flags & O_PATH) &&
           fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* Names of keys and ids of sessions become parts of other names. */
static bool is_name(const char text[PLACE_ID])
{
    size_t len = strnlen(text, PLACE_ID);
    return len < PLACE_ID && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_.@-") == len;
}

static bool is_head(int fd)
{
    struct place_head head;
    return pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) && is_name(head.owner) &&
           is_name(head.session);
}

static bool are_words(int fd, off_t *ret_size)
{
    struct stat st;
    char last;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 ||
        st.st_size <= (off_t)sizeof(struct place_head) || st.st_size > PLACE_WORDS_MAX ||
        pread(fd, &last, 1, st.st_size - 1) != 1 || last || !is_head(fd))
        return false;
    *ret_size = st.st_size;
    return true;
}

bool place_words_are(int fd)
{
    off_t size;
    return are_words(fd, &size);
}

int place_words_take(int fd, struct buf *to)
{
    char piece[PIECE];
    off_t size, at = 0;
    if (!are_words(fd, &size))
        return -EPROTO;
    while (at < size) {
        ssize_t n = pread(fd, piece, sizeof(piece), at);
        int r = n > 0 ? buf_append(to, piece, (size_t)n) : -EPROTO;
        if (r < 0)
            return r;
        at += n;
    }
    return 0;
}
