// A control: meshes whose vectors are told their sizes before they are filled, and filled to the last place. They stay until the
// last picture is drawn.
#include <cstdio>
#include <memory>
#include <vector>
#include "dice.h"

struct Corner { float x, y, z, shade; };

class Mesh {
public:
    explicit Mesh(unsigned count)
    {
        corners.reserve(count);
        for (unsigned i = 0; i < count; i++)
            corners.push_back({roll(100) / 1.f, roll(100) / 1.f, roll(100) / 1.f, 1});
        faces.resize((count - 2) * 3);
        for (unsigned i = 0; i < faces.size(); i++)
            faces[i] = (i / 3 + i % 3) % count;
    }
    double draw() const
    {
        double sum = 0;
        for (unsigned face : faces)
            sum += corners[face].x * corners[face].shade;
        return sum;
    }

private:
    std::vector<Corner> corners;
    std::vector<unsigned> faces;
};

int main()
{
    std::vector<std::unique_ptr<Mesh>> meshes;
    meshes.reserve(1200);
    for (int i = 0; i < 1200; i++)
        meshes.push_back(std::make_unique<Mesh>(256));
    double sum = 0;
    for (int picture = 0; picture < 120; picture++)
        for (auto &mesh : meshes)
            sum += mesh->draw();
    std::printf("%.0f\n", sum);
}
