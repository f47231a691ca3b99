/* Response heads. The version is 1.1 always (RFC 9110, 2.5): what a 1.0 client can't read — chunks
 * — it isn't sent. */
#include "daemon/respond.h"

#include "daemon/http.h"

const char respond_continue[] = "HTTP/1.1 100 Continue\r\n\r\n";

/* RFC 9110, 5.6.7; strftime would follow the locale. */
static void write_date(time_t now, struct buf *b)
{
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm t;
    if (!gmtime_r(&now, &t))
        return;
    buf_printf(b, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday,
               months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

void respond_head(const struct respond *r, struct buf *b)
{
    buf_printf(b, "HTTP/1.1 %d %s\r\n", r->status, http_reason(r->status));
    write_date(r->now, b);
    if (r->status != 204) {
        buf_printf(b, "Content-Type: %s\r\n",
                   r->content_type ? r->content_type : "application/json");
        if (r->is_chunked)
            buf_str(b, "Transfer-Encoding: chunked\r\nCache-Control: no-store\r\n");
        else
            buf_printf(b, "Content-Length: %zu\r\n", r->length);
    }
    buf_printf(b, "Connection: %s\r\n", r->keep_alive ? "keep-alive" : "close");
    if (r->retry_after_s > 0)
        buf_printf(b, "Retry-After: %d\r\n", r->retry_after_s);
    if (r->allow)
        buf_printf(b, "Allow: %s\r\n", r->allow);
    if (r->wants_key)
        buf_str(b, "WWW-Authenticate: Bearer realm=\"hearth\"\r\n");
    if (r->cors_origin) {
        buf_printf(b, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", r->cors_origin);
        if (r->status == 204)
            buf_printf(b,
                       "Access-Control-Allow-Methods: %s\r\n"
                       "Access-Control-Allow-Headers: Authorization, Content-Type\r\n"
                       "Access-Control-Max-Age: 600\r\n",
                       r->allow ? r->allow : "GET, POST, DELETE");
    }
    buf_str(b, "\r\n");
}
