/* The program behind each door: a room's objects, whole, and the rooms it may call. That it links
 * is the test. */
int main(void)
{
    return 0;
}
