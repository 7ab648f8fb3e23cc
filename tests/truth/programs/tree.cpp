// Control: a table that is filled once and asked often.
#include <map>
#include <string>

int main()
{
    std::map<int, long> all;
    for (int i = 0; i < COUNT; i++)
        all[i * 7919 % 1000003] = i;
    long sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += all.count(i);
    return sum < 0;
}
